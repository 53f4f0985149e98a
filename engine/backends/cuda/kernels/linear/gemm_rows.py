"""Kernels around torch's matrix products, one block per row: fp16 rows, additions, scaling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    absolute,
    barrier,
    bits_float,
    block_x,
    float_bits,
    ld_f32,
    ld_f32x4,
    ld_i32,
    ldg_f32,
    ldg_i64,
    lds_f32,
    maximum,
    pack_fp16,
    shared,
    shfl_xor_f32,
    st_f32,
    st_u32x2,
    static,
    sts_f32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.lowering.call import Blocks

THREADS = 256
SMALLEST, LARGEST = 2.0**-10, 2.0**15
"""A row whose largest magnitude lies between these is converted unscaled: what falls below fp16's normal
numbers is less than 2^-15 of it.
"""
LOWEST, HIGHEST = 2.0**-100, 2.0**126


def row_blocks(rows: int) -> Blocks:
    """A grid of one block per row, in x because there may be more than 65535."""
    return lambda _: (rows, 1, 1)


def _largest(x: int, columns: int) -> Any:
    """The largest magnitude of a row, the same in all threads."""
    top, column = float32(0.0), int32(thread())
    while column < columns:
        top = maximum(top, absolute(ld_f32(x + 4 * int64(column))))
        column = int32(column + THREADS)
    tops = shared(32)
    for i in static(range(5)):
        top = maximum(top, shfl_xor_f32(top, 1 << i))
    if thread() & 31 == 0:
        sts_f32(int32(tops + 4 * (thread() >> 5)), top)
    barrier()
    for i in static(range(8)):
        top = maximum(top, lds_f32(int32(tops + 4 * i)))
    return top


def _fp16_rows(x: int, x_stride: int, target: int, target_stride: int, factors: int, columns: int) -> None:
    """x[row] = factor * target[row], target fp16.

    The factor is 1, or, if the largest magnitude is outside SMALLEST .. LARGEST, a power of two near it.
    x: float32 rows; `factors`: float32 (rows,); strides in bytes.
    """
    wait_for_others()
    row = int64(block_x())
    here, there = x + row * x_stride, target + row * target_stride
    top = _largest(here, columns)
    factor = float32(1.0)
    if top > float32(LARGEST) or (top < float32(SMALLEST) and top > float32(0.0)):
        top = bits_float(uint32(float_bits(top) & uint32(0x7F800000)))
        factor = (
            float32(LOWEST) if top < float32(LOWEST) else float32(HIGHEST) if top > float32(HIGHEST) else top
        )
    # 1 / factor: the exponent is negated.
    inverse = bits_float(uint32(uint32(254 << 23) - float_bits(factor)))
    if thread() == 0:
        st_f32(factors + 4 * row, factor)
    column = int32(4 * thread())
    while column < columns:
        a, b, c, d = ld_f32x4(here + 4 * int64(column))
        b = b if column + 1 < columns else float32(0.0)
        c = c if column + 2 < columns else float32(0.0)
        d = d if column + 3 < columns else float32(0.0)
        st_u32x2(
            there + 2 * int64(column),
            pack_fp16(a * inverse, b * inverse),
            pack_fp16(c * inverse, d * inverse),
        )
        column = int32(column + 4 * THREADS)


def _before(
    y: int, y_stride: int, residual: int, residual_stride: int, bias: int, factors: int, width: int
) -> None:
    """y = (residual + bias) / factor of the row; `factors` 0 means all are 1. Strides in bytes."""
    wait_for_others()
    row = int64(block_x())
    factor = ld_f32(factors + 4 * row) if factors != 0 else float32(1.0)
    inverse = bits_float(uint32(uint32(254 << 23) - float_bits(factor)))
    column = int32(thread())
    while column < width:
        at = 4 * int64(column)
        total = ld_f32(residual + row * residual_stride + at) if residual != 0 else float32(0.0)
        if bias != 0:
            total = total + ldg_f32(bias + at)
        st_f32(y + row * y_stride + at, total * inverse)
        column = int32(column + THREADS)


def _after(y: int, y_stride: int, factors: int, width: int) -> None:
    """y *= factor of the row, unless it is 1. The stride is in bytes."""
    wait_for_others()
    row = int64(block_x())
    factor = ld_f32(factors + 4 * row)
    column = int32(thread())
    if factor != float32(1.0):
        while column < width:
            at = y + row * y_stride + 4 * int64(column)
            st_f32(at, factor * ld_f32(at))
            column = int32(column + THREADS)


def _expert_biases(
    y: int,
    y_stride: int,
    ids: int,
    ids_stride: int,
    used: int,
    biases: int,
    bias_stride: int,
    width: int,
    table: int,
) -> None:
    """Row r of y += bias row e = ids[r / used, r % used], if entry e of the table of addresses is not 0."""
    wait_for_others()
    row = int32(block_x())
    token = int32(row // used)
    expert = ld_i32(ids + int64(token) * ids_stride + 4 * int64(row - token * used))
    column = int32(thread()) if ldg_i64(table + 8 * int64(expert)) != 0 else width
    while column < width:
        at = y + int64(row) * y_stride + 4 * int64(column)
        st_f32(at, ld_f32(at) + ldg_f32(biases + int64(expert) * bias_stride + 4 * int64(column)))
        column = int32(column + THREADS)


_CONSTANTS = {
    "THREADS": THREADS,
    "SMALLEST": SMALLEST,
    "LARGEST": LARGEST,
    "LOWEST": LOWEST,
    "HIGHEST": HIGHEST,
}


@cache
def fp16_rows_kernel() -> Kernel:
    return Kernel("gemm_fp16", _fp16_rows, "llllli", THREADS, 40, _CONSTANTS, 4)


@cache
def before_kernel() -> Kernel:
    return Kernel("gemm_before", _before, "lllllli", THREADS, 40, _CONSTANTS, 4)


@cache
def after_kernel() -> Kernel:
    return Kernel("gemm_after", _after, "llli", THREADS, 40, _CONSTANTS, 4)


@cache
def expert_biases_kernel() -> Kernel:
    return Kernel("gemm_expert_biases", _expert_biases, "llllillil", THREADS, 40, _CONSTANTS, 4)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield fp16_rows_kernel()
    yield before_kernel()
    yield after_kernel()
    yield expert_biases_kernel()
