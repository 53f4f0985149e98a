"""Folders of tiny models whose config.json is damaged: each is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint


def assert_refused(
    folder: Path,
    into: Path,
    changes: Mapping[str, Any],
    words: str | None = None,
    part: str = "vision_config",
) -> None:
    """The model in `folder` with `changes` to a part of its config.json ("" for the whole) is refused in one
    sentence, in which the pattern `words` occurs. It is written `into` another folder, with its weights and
    its configuration alone.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (config[part] if part else config).update(changes)
    (into / "config.json").write_text(json.dumps(config), "utf-8")
    (into / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(EngineError, match=words) as raised, closing(open_checkpoint(into)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)
