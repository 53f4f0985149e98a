"""Activations as 16-bit integers with one scale for each 32 of them: the input of products with codes.

A block of 32 features takes 96 bytes: 32 high bytes and 32 low bytes (see `simd_bytes`); float32: the scale
s, and s times the sums of the first 16 integers, of the last 16 and of all; int32: those three sums negated;
and 4 bytes of padding. The error of a value is at most 1 / 65000 of the largest magnitude of its block.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    const_f32,
    const_vector,
    counted_loop,
    floor,
    fma,
    intrinsic_function,
    load,
    reduce,
    rint,
    splat,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import BASE, LIMIT

FEATURES = 32
PACKED_BYTES = 96
LOW, SCALE, SUMS, INTEGER_SUMS = 32, 64, 68, 80
"""Offsets of the parts of a block, after the high bytes at 0. Sums: the first half, the second half, all."""
_SMALLEST = 1e-30
"""A block whose magnitudes are all at most this counts as zeros: the inverse of its scale could overflow."""
_VI8 = ir.VectorType(I8, LANES)


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


def quantise(
    b: ir.IRBuilder, x: ir.Value, largest: int = LIMIT
) -> tuple[ir.Value, list[ir.Value], list[ir.Value]]:
    """Quantise the 32 float32 values at x to scale * integer; the largest magnitude becomes `largest`.

    Returns the scale, two vectors of int32, and their float32 sums: the first, the second, both.
    """
    parts = [load(b, x, VF32, 64 * i) for i in range(2)]
    # The bits of magnitudes, compared as integers, have the same order, and those of NaN are the largest: a
    # block with NaN gets NaN as its scale and sums.
    bits = [b.and_(b.bitcast(half, VI32), const_vector(0x7FFFFFFF, VI32)) for half in parts]
    top = b.bitcast(reduce(b, _larger(b, *bits), lambda p, q: _larger(b, p, q)), F32)
    inverse = splat(
        b,
        b.select(
            b.fcmp_ordered(">", top, const_f32(_SMALLEST)),
            b.fdiv(const_f32(float(largest)), top),
            const_f32(0.0),
        ),
    )
    scale = b.select(
        b.fcmp_ordered("<=", top, const_f32(_SMALLEST)), const_f32(0.0), b.fmul(top, const_f32(1.0 / largest))
    )
    numbers = []
    for half in parts:
        ratio = b.fmul(half, inverse)
        ratio = b.select(b.fcmp_ordered("ord", ratio, ratio), ratio, const_vector(0.0))
        numbers.append(rint(b, ratio))
    # Integers far below 2^24: float32 adds them exactly.
    sums = [reduce(b, number, b.fadd) for number in numbers]
    return scale, [b.fptosi(number, VI32) for number in numbers], [*sums, b.fadd(*sums)]


def high_byte(b: ir.IRBuilder, whole: ir.Value) -> ir.Value:
    """The high bytes of 16-bit integers; both float32 (16)."""
    return floor(b, fma(b, whole, const_vector(1.0 / BASE), const_vector(0.5)))


def _emit_packed(b: ir.IRBuilder, x: ir.Value, target: ir.Value) -> None:
    scale, numbers, sums = quantise(b, x)
    for i, number in enumerate(numbers):
        high = b.fptosi(high_byte(b, b.sitofp(number, VF32)), VI32)
        low = b.sub(number, b.mul(high, const_vector(BASE, VI32)))
        for at, part in ((0, high), (LOW, low)):
            store(b, b.trunc(part, _VI8), target, at + LANES * i)
    store(b, scale, target, SCALE)
    for i, total in enumerate(sums):
        store(b, b.fmul(total, scale), target, SUMS + 4 * i)
        store(b, b.neg(b.fptosi(total, I32)), target, INTEGER_SUMS + 4 * i)


def _emit_row(b: ir.IRBuilder, x: Any, count: Any, packed: Any) -> None:
    with counted_loop(b, count) as i:
        _emit_packed(
            b,
            b.add(x, b.mul(i, ir.Constant(I64, 4 * FEATURES))),
            b.add(packed, b.mul(i, ir.Constant(I64, PACKED_BYTES))),
        )


quantise_row = intrinsic_function("quantise_row", types.void, (types.int64,) * 3, _emit_row)
"""quantise_row(x, count, packed): 32 `count` float32 values to `count` blocks."""
