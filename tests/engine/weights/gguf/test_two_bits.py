"""GGUF's Q1_0 and Q2_0, value by value; ggml 0.25's own `dequantize_row_q1_0` and `_q2_0` gave the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.tensors import Bytes, Floats
from engine.weights.tensor import find_format
from tests.engine.weights.gguf.test_file import build, entry, opened

RNG = np.random.default_rng(2)


def blocks(values: int, count: int) -> tuple[Bytes, Floats]:
    """Blocks of so many values each, and what they stand for."""
    raw = RNG.integers(0, 256, (count, 18), dtype=np.uint8)
    scales = RNG.uniform(0.1, 2, count).astype("<f2")
    raw[:, :2] = scales[:, None].view(np.uint8)
    bits = 128 // values
    out = np.empty((count, values), np.float32)
    for b in range(count):
        for i in range(values):
            at = i * bits
            code = raw[b, 2 + at // 8] >> at % 8 & (2**bits - 1)
            out[b, i] = np.float32(scales[b]) * (2 * int(code) - 1 if bits == 1 else int(code) - 1)
    return raw.reshape(-1), out.reshape(-1)


@pytest.mark.parametrize(
    ("name", "number", "values", "kept"), [("Q1_0", 41, 128, "GROUPED2_128"), ("Q2_0", 42, 64, "GROUPED2_64")]
)
def test_matrices_stacks_and_vectors(tmp_path: Path, name: str, number: int, values: int, kept: str) -> None:
    raw, meant = blocks(values, 20 * 256 // values)
    shapes: dict[str, tuple[int, ...]] = {"a": (20, 256), "b": (5, 4, 256), "c": (20 * 256,)}
    each, form = -(-raw.size // 32) * 32, find_format(name)
    assert form is not None
    np.testing.assert_array_equal(form.dequantise(raw, (20, 256)), meant.reshape(20, 256))
    entries = [entry(key, shape[::-1], number, i * each) for i, (key, shape) in enumerate(shapes.items())]
    found = opened(build([], entries, (raw.tobytes() + bytes(each - raw.size)) * 3), tmp_path).tensors
    for key, shape in shapes.items():
        assert (found[key].shape, found[key].nbytes) == (shape, raw.size)
        np.testing.assert_array_equal(found[key].dequantise(), meant.reshape(shape))
    assert (found["a"].type, found["b"].type, found["c"].type) == (kept, kept, name)
    np.testing.assert_array_equal(found["a"].take([7, 0]).dequantise(), meant.reshape(20, 256)[[7, 0]])
    np.testing.assert_array_equal(found["b"].part(3).dequantise(), meant.reshape(5, 4, 256)[3])
    weight = CpuBackend(1).load_weight(found["a"])
    assert weight.nbytes < 4 * raw.size
