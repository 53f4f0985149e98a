"""The building blocks of kernels where LLVM has been seen to go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen.simd import VF32, VI32, intrinsic_function, load, reduce, reduce_each, store
from tests.engine.backends.cpu.test_weight_types import compiled


def test_two_sums_of_whole_numbers_side_by_side() -> None:
    """LLVM 22 added wrong lanes for the first of two such sums on a CPU with AVX-512."""

    def emit(b: ir.IRBuilder, x: Any, out: Any) -> None:
        for i, number in enumerate([b.fptosi(load(b, x, VF32, 64 * i), VI32) for i in range(2)]):
            store(b, reduce(b, number, b.add), out, 4 * i)

    call = compiled(intrinsic_function("two_sums", types.void, (types.int64,) * 2, emit), 2)
    for seed in range(20):
        x, out = (
            np.random.default_rng(seed).integers(-32639, 32640, (2, 16)).astype(np.float32),
            np.zeros(2, np.int32),
        )
        call(x.ctypes.data, out.ctypes.data)
        assert np.array_equal(out, x.sum(1))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_several_vectors_are_reduced_each_to_its_lane(count: int) -> None:
    def emit(b: ir.IRBuilder, x: Any, out: Any) -> None:
        vectors = [load(b, x, VI32, 64 * i) for i in range(count)]
        store(b, reduce_each(b, vectors, b.add), out)
        largest = reduce_each(b, vectors, lambda p, q: b.select(b.icmp_signed(">", p, q), p, q))
        store(b, largest, out, 4 * count)

    call = compiled(intrinsic_function(f"reduced_{count}", types.void, (types.int64,) * 2, emit), 2)
    x, out = (
        np.random.default_rng(count).integers(-999, 999, (count, 16), np.int32),
        np.zeros((2, count), np.int32),
    )
    call(x.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, [x.sum(1), x.max(1)])
