"""How an embedding model pools, as its files say."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.weights.checkpoint import Checkpoint
from engine.weights.facts import pooling


@pytest.mark.parametrize(
    ("kind", "expected"), [(0, ""), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank"), (None, "")]
)
def test_gguf(kind: int | None, expected: str) -> None:
    metadata = {"general.architecture": "qwen3", "qwen3.pooling_type": kind, "llama.pooling_type": 2}
    if kind is None:
        del metadata["qwen3.pooling_type"]
    assert pooling(cast(Checkpoint, SimpleNamespace(format="gguf", metadata=metadata))) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True}, "last+cls"),
        ({"pooling_mode_max_tokens": True}, "max_tokens"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "mean_tokens", "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": None}, ""),
        ({}, ""),
        (None, ""),
        ([], ""),
    ],
)
def test_folders(settings: Any, expected: str, tmp_path: Path) -> None:
    if settings is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    assert pooling(cast(Checkpoint, SimpleNamespace(format="safetensors", path=tmp_path))) == expected
