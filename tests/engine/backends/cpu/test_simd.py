"""The building blocks of kernels where LLVM has been seen to go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen.simd import VF32, VI32, intrinsic_function, load, reduce, store
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
