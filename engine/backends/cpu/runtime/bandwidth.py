"""The rate at which this machine reads memory: the ceiling of decoding, measured with the threads that
decode.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    I64,
    VI32,
    Accumulators,
    const_vector,
    counted_loop,
    intrinsic_function,
    ld_i64,
    load,
    prefetch,
    reduce,
    st_i32,
)
from engine.backends.cpu.runtime.memory import aligned

_STREAMS = 4
_TILE = 256 << 10
"""Bytes of one ticket, read as four streams a quarter apart: more loads are in flight than with one."""


def _emit_read(b: ir.IRBuilder, address: Any, size: Any) -> Any:
    totals = Accumulators(b, _STREAMS)
    totals.clear()
    quarter = b.udiv(size, ir.Constant(I64, _STREAMS))
    with counted_loop(b, b.udiv(quarter, ir.Constant(I64, 64))) as i:
        for s in range(_STREAMS):
            line = b.add(b.add(address, b.mul(quarter, ir.Constant(I64, s))), b.mul(i, ir.Constant(I64, 64)))
            prefetch(b, line, 2048)
            before = b.bitcast(totals.get(s), VI32)
            totals.set(s, b.bitcast(b.xor(before, load(b, line, VI32)), totals.get(s).type))
    value = const_vector(0, VI32)
    for s in range(_STREAMS):
        value = b.xor(value, b.bitcast(totals.get(s), VI32))
    return reduce(b, value, b.xor)


read_lines = intrinsic_function("read_lines", types.int32, (types.int64, types.int64), _emit_read)


def read_memory(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: read 256 KB and keep a checksum, so that nothing is optimised away."""
    st_i32(scratch, read_lines(ld_i64(args) + tile * ld_i64(args + 8), ld_i64(args + 8)))


def read_bandwidth(threads: int, megabytes: int = 512, seconds: float = 0.5) -> float:
    """Bytes a second that `threads` threads read from memory together: the best of the passes made in
    `seconds`.
    """
    from engine.backends.cpu.codegen.kernel_cache import KERNELS
    from engine.backends.cpu.runtime.thread_pool import OPERATION, Recording, ThreadPool

    for _ in KERNELS.compile(["read_memory"]):
        pass
    data = aligned(megabytes << 20)
    data[:] = 1  # pages that were never written are not really there
    block = np.array([data.ctypes.data, _TILE], np.int64)
    tiles = data.size // _TILE
    tape = np.zeros(OPERATION, np.int64)
    tape[:6] = [KERNELS.address("read_memory"), block.ctypes.data, tiles, 1, tiles, 1]
    recording = Recording(tape, np.array([0, 1], np.int64), np.ones(8, np.int64), threads)
    pool = ThreadPool(KERNELS.pool, threads, 4096)
    best, until = 0.0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < until:
            start = time.perf_counter()
            pool.replay(recording)
            best = max(best, data.size / (time.perf_counter() - start))
    finally:
        pool.close()
    return best
