"""RWKV-6 from GGUF files against the papers' formulas in float64 and against llama.cpp, on every backend,
in any cut into steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backends.cpu.backend import CpuBackend
from tests.engine.models.families.rwkv6_files import Shape, expected_logits, tensors, write_gguf
from tests.engine.models.families.test_rwkv import BACKENDS, CUTS, TOKENS, assert_near
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp

SHAPES = {
    "rwkv6": Shape(halved=2, fused=False), "odd": Shape(width=60, dim=12, inner=50, rank=7),
    "rwkv6qwen2": Shape(groups=2), "no biases": Shape(groups=4, biases=False),
}  # fmt: skip


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SHAPES)
def test_gguf_file_agrees_with_the_paper(backend: str, name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    stored = tensors(shape)
    model = load(write_gguf(tmp_path / "m.gguf", shape, stored), BACKENDS[backend]())
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected_logits(shape, stored, TOKENS))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [Shape(128, 64, halved=1), Shape(256, 64, groups=2)], ids=["rwkv6", "qwen2"]
)
def test_gguf_file_agrees_with_llama_cpp(shape: Shape, tmp_path: Path) -> None:
    """With heads of 64, as all published models have."""
    path = write_gguf(tmp_path / "m.gguf", shape, tensors(shape))
    expected = by_llama_cpp(path, TOKENS)
    model = load(path, CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected, 1e-3)  # llama.cpp rounds nothing here, but sums in another order
