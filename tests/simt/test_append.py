"""The kernels that write the store: body against twin, and the twin against the definition of the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.append import append_kernel
from engine.backends.cuda.store import KEYS, VALUES, side_bytes
from tests.simt.agree import At, both


def step(rng: Any, rows: int, heads: int, ratio: int, dim: int) -> list[Any]:
    """q, k and v of a step, rows padded as buffers are."""
    widths = (heads * ratio * dim, heads * dim, heads * dim)
    offset = rng.standard_normal((1, widths[1])) * 2
    out = []
    for i, width in enumerate(widths):
        x = rng.standard_normal((rows, width)) + (offset if i == 1 else 0)
        x[:, :: max(1, dim // 3)] *= 6
        out.append(np.pad(x, ((0, 0), (0, -width % 16))).astype(np.float32))
    return out


def launch_arguments(arrays: list[Any], ratio: int, dim: int) -> list[Any]:
    q, k, v = arrays[:3]
    strides = [x.strides[0] for x in (q, k, v)]
    return [At(0), strides[0], At(1), strides[1], At(2), strides[2], At(3), At(4), At(5), At(6), ratio, -(-dim // 32), 0, 1]


def stores(rng: Any, kinds: tuple[str, str], heads: int, dim: int, pages: int) -> list[Any]:
    """Stores of keys and values filled with what was there before: small numbers."""
    return [
        rng.integers(0, 0x38, pages * heads * side_bytes(side, name, dim), dtype=np.uint8)
        for side, name in zip((KEYS, VALUES), kinds, strict=True)
    ]


CASES = [(("fp32", "fp16"), 40, 255), (("fp16", "fp8"), 9, 0), (("q8", "q8"), 40, 255), (("q8", "q4"), 8, 0), (("q4", "fp16"), 8, 15)]
MORE = [(("fp8", "fp32"), 40, 0), (("q8", "q8"), 8, 0), (("q8", "q4"), 64, 255), (("q4", "q4"), 40, 0), (("q4", "q4"), 64, 255)]


@pytest.mark.parametrize(("kinds", "dim", "position"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)])
def test_body_and_twin_write_the_same_bytes(kinds: tuple[str, str], dim: int, position: int) -> None:
    rng = np.random.default_rng(dim)
    rows, heads, ratio = 2, 1 if kinds[0] == "q4" else 2, 3
    arrays = [*step(rng, rows, heads, ratio, dim), *stores(rng, kinds, heads, dim, 3)]
    arrays += [np.array([position], np.int32), np.array([2, 0], np.int32)]
    kernel = append_kernel(*kinds, dim)
    found, expected = both(kernel, (heads, rows, 2), launch_arguments(arrays, ratio, dim), arrays)
    for side in (3, 4):
        assert (found[side] != arrays[side]).any()
        np.testing.assert_array_equal(found[side], expected[side])
