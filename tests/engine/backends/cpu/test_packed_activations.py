"""Blocks of activations, packed several at a time and one alone."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.codegen.simd_bytes import BASE, LIMIT
from engine.backends.cpu.kernels.packed_activations import (
    AT_ONCE,
    FEATURES,
    INTEGER_SUMS,
    LOW,
    PACKED_BYTES,
    SCALE,
    SUMS,
    quantise_row,
)
from engine.backends.cpu.runtime.memory import aligned
from tests.engine.backends.cpu.test_weight_types import compiled


@pytest.mark.parametrize("count", [1, AT_ONCE, 2 * AT_ONCE + 3])
def test_each_block_has_its_own_scale_integers_and_sums(count: int) -> None:
    rng = np.random.default_rng(count)
    x = (rng.standard_normal((count, FEATURES)) * 10.0 ** rng.integers(-5, 6, (count, 1))).astype(np.float32)
    x[0] = 0
    if count > 1:
        x[1, 5], x[-2] = np.nan, 1e-31  # too small for a scale whose inverse is a number
    packed = aligned(PACKED_BYTES * (count + 1))
    packed[:] = 77
    compiled(quantise_row, 3)(x.ctypes.data, count, packed.ctypes.data)
    assert (packed[PACKED_BYTES * count :] == 77).all()
    blocks = packed[: PACKED_BYTES * count].reshape(count, PACKED_BYTES)
    high, low = (blocks[:, at : at + FEATURES].view(np.int8).astype(np.int64) for at in (0, LOW))
    found, scale = high * BASE + low, blocks[:, SCALE : SCALE + 4].view(np.float32)
    top = np.abs(x).max(1, keepdims=True)
    small = ~(top > 1e-30)  # NaN is neither
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(small, np.float32(0), np.float32(LIMIT) / top)
        expected = np.rint(np.nan_to_num(x * inverse, nan=0)).astype(np.int64)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(scale, np.where(top <= 1e-30, np.float32(0), top * np.float32(1 / LIMIT)))
    halves = found.reshape(count, 2, -1).sum(2)
    sums = np.concatenate([halves, halves.sum(1, keepdims=True)], axis=1)
    np.testing.assert_array_equal(blocks[:, INTEGER_SUMS : INTEGER_SUMS + 12].view(np.int32), -sums)
    np.testing.assert_array_equal(
        blocks[:, SUMS : SUMS + 12].view(np.float32), sums.astype(np.float32) * scale
    )
