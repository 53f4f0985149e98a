"""Models on the CPU backend against the reference: every tensor type, odd shapes, steps of many sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.reference.backend import ReferenceBackend
from engine.models import Model, read_model
from engine.weights import FileTensor
from engine.weights.gguf.file import GgufFile
from tests.engine.models.oracle import SixteenBits, assert_near_exact, finish, load, logits
from tests.engine.models.test_llama import IDS, TYPES, VARIANTS
from tests.tiny import TINY, WIDE, write_folder, write_gguf

CUTS = [1, 2, 10, 11, 40]


def load_as_kept(path: Path, backend: ReferenceBackend) -> Model:
    """Load on the reference, with matrices that the CPU backend has no layout for rounded to fp16 as it keeps
    them.
    """
    if path.is_dir():
        return load(path, backend)
    checkpoint = GgufFile(path)
    checkpoint.tensors = {
        name: FileTensor(
            name, "F16", tensor.shape, tensor.dequantise().astype(np.float16).reshape(-1).view(np.uint8)
        )
        if len(tensor.shape) == 2 and tensor.type not in weight_layout_for(tensor.type).types
        else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return finish(read_model(checkpoint, backend))


def assert_backends_agree(path: Path) -> None:
    exact = logits(load_as_kept(path, ReferenceBackend()), IDS[:70])
    model = load(path, CpuBackend(threads=2))  # prepared for the automatic cache: fp16
    rounded = logits(load_as_kept(path, SixteenBits()), IDS[:70], CUTS)
    assert_near_exact(logits(model, IDS[:70], CUTS, dtype="fp32"), exact, rounded)
    half = np.abs(logits(model, IDS[:70], CUTS, dtype="auto") - exact)
    assert 2e-4 < half.max() < 0.1
    model.close()


@pytest.mark.parametrize("name", ["biases", "one kv head", "as many kv heads", "llama3 scaling"])
def test_shapes(tmp_path: Path, name: str) -> None:
    assert_backends_agree(write_folder(tmp_path / "m", VARIANTS[name]))
    assert_backends_agree(write_gguf(tmp_path / "m.gguf", VARIANTS[name], "F16"))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("type_name", TYPES)
def test_tensor_types(tmp_path: Path, type_name: str) -> None:
    assert_backends_agree(write_gguf(tmp_path / "m.gguf", WIDE, type_name))


def test_mixed_types_untied(tmp_path: Path) -> None:
    assert_backends_agree(
        write_gguf(
            tmp_path / "m.gguf", TINY, "Q4_1", {"token_embd": "Q8_0", "output": "BF16", "attn_v": "F16"}
        )
    )
