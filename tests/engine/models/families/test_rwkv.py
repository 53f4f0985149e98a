"""RWKV-7: folders and GGUF files against the paper's formulas in float64 and against llama.cpp, in any cut
into steps, on every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.models.architectures import ids
from tests.engine.models.families.rwkv_files import (
    EPS,
    HEAD_EPS,
    Shape,
    expected_logits,
    tensors,
    write_folder,
    write_gguf,
)
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp
from tests.simt.fake import FakeDevice

TOKENS = ids(60)
PLAIN, CONVERTED = Shape(), Shape(converted=True)
SIZES = {"usual": PLAIN, "odd": Shape(width=60, dim=12, inner=50), "64": Shape(width=128, dim=64)}
BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend, "cpu": lambda: CpuBackend(threads=2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
}  # fmt: skip
CUTS = [1, 7, 8, 21, 22, 59]


def assert_near(found: Any, expected: Any, share: float = 1e-4) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_folder_agrees_with_the_paper(backend: str, size: str, tmp_path: Path) -> None:
    shape = SIZES[size]
    stored = tensors(shape)
    model = load(write_folder(tmp_path / "m", shape, stored), BACKENDS[backend]())
    found = logits(model, TOKENS, () if backend == "reference" else CUTS)
    model.close()
    # The folder's epsilon of norms is that of heads by the size of a head.
    assert_near(found, expected_logits(shape, stored, TOKENS, HEAD_EPS / shape.dim))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [PLAIN, CONVERTED], ids=["rwkv7", "arwkv7"])
def test_gguf_file_agrees_with_the_paper(backend: str, shape: Shape, tmp_path: Path) -> None:
    stored = tensors(shape)
    model = load(write_gguf(tmp_path / "m.gguf", shape, stored), BACKENDS[backend]())
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected_logits(shape, stored, TOKENS, EPS))


@pytest.mark.slow
@pytest.mark.parametrize("converted", [False, True], ids=["rwkv7", "arwkv7"])
def test_gguf_file_agrees_with_llama_cpp(converted: bool, tmp_path: Path) -> None:
    """With heads of 64: others come out wrong there, as the float64 formulas show."""
    shape = Shape(width=128, dim=64, converted=converted)
    path = write_gguf(tmp_path / "m.gguf", shape, tensors(shape))
    expected = by_llama_cpp(path, TOKENS)
    model = load(path, CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected, 1e-3)  # llama.cpp rounds nothing here, but sums in another order
