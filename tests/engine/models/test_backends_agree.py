"""Whole tiny models on the CPU backend against the reference: every tensor type, odd shapes, steps of many sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu import CpuBackend
from engine.weights import FORMATS
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_llama import IDS, VARIANTS
from tests.tiny import TINY, WIDE, write_folder, write_gguf

CUTS = [1, 2, 10, 11, 40]


def assert_backends_agree(path: Path) -> None:
    expected = logits(load(path), IDS[:70])
    model = load(path, CpuBackend(threads=2))  # prepared for the automatic cache: fp16
    np.testing.assert_allclose(logits(model, IDS[:70], CUTS, dtype="fp32"), expected, atol=2e-4)
    half = np.abs(logits(model, IDS[:70], CUTS, dtype="auto") - expected)
    assert 2e-4 < half.max() < 0.1
    model.close()


@pytest.mark.parametrize("name", ["biases", "one kv head", "as many kv heads", "llama3 scaling"])
def test_shapes(tmp_path: Path, name: str) -> None:
    assert_backends_agree(write_folder(tmp_path / "m", VARIANTS[name]))
    assert_backends_agree(write_gguf(tmp_path / "m.gguf", VARIANTS[name], "F16"))


@pytest.mark.parametrize("type_name", [entry.name for entry in FORMATS])
def test_tensor_types(tmp_path: Path, type_name: str) -> None:
    assert_backends_agree(write_gguf(tmp_path / "m.gguf", WIDE, type_name))


def test_mixed_types_untied(tmp_path: Path) -> None:
    assert_backends_agree(write_gguf(tmp_path / "m.gguf", TINY, "Q4_1", {"token_embd": "Q8_0", "output": "BF16", "attn_v": "F16"}))
