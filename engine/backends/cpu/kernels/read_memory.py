"""A kernel that only reads memory, to measure the read bandwidth."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64, st_i32
from engine.backends.cpu.codegen.simd import (
    I64,
    VI32,
    Accumulators,
    const_vector,
    counted_loop,
    intrinsic_function,
    load,
    prefetch,
    reduce,
)

_STREAMS = 4
TILE = 256 << 10
"""Bytes of a tile, read as four streams a quarter apart, so that more loads are in flight."""
READ_AHEAD = (0, 2048)
"""Bytes ahead that a line is prefetched: some processors read faster without, others with."""


def _emit_read(b: ir.IRBuilder, address: Any, size: Any, ahead: Any) -> Any:
    totals = Accumulators(b, _STREAMS)
    totals.clear()
    quarter = b.udiv(size, ir.Constant(I64, _STREAMS))
    with counted_loop(b, b.udiv(quarter, ir.Constant(I64, 64))) as i:
        for s in range(_STREAMS):
            line = b.add(b.add(address, b.mul(quarter, ir.Constant(I64, s))), b.mul(i, ir.Constant(I64, 64)))
            prefetch(b, b.add(line, ahead), 0)
            before = b.bitcast(totals.get(s), VI32)
            totals.set(s, b.bitcast(b.xor(before, load(b, line, VI32)), totals.get(s).type))
    value = const_vector(0, VI32)
    for s in range(_STREAMS):
        value = b.xor(value, b.bitcast(totals.get(s), VI32))
    return reduce(b, value, b.xor)


read_lines = intrinsic_function("read_lines", types.int32, (types.int64,) * 3, _emit_read)


def read_memory(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: read its bytes and store their XOR, so that the loads are not optimised away.

    Arguments: address of the data, bytes of a tile, bytes of `READ_AHEAD`.
    """
    size = ld_i64(args + 8)
    st_i32(scratch, read_lines(ld_i64(args) + tile * size, size, ld_i64(args + 16)))
