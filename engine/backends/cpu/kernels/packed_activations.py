"""Activations as 16-bit integers with a scale for 32 of them: what products with integer codes read.

A block of 32 features, 96 bytes: 32 high bytes and 32 low bytes (`simd_bytes`), then float32: the scale s, s
times the sums of the first and second 16 whole numbers and of all, then int32: minus those three sums, and a
word of padding. The error of a number is at most 1 / 65000 of the largest of its 32, a hundredth of what 8
bits make.
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
"""Where the parts of a block begin; high bytes come first.

`SUMS` and `INTEGER_SUMS` are of the first half, the second, and all.
"""
_LEAST = 1e-30
"""A block in which nothing is larger counts as zeros: its scale's inverse could not be told."""
_VI8 = ir.VectorType(I8, LANES)


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


def quantise(
    b: ir.IRBuilder, x: ir.Value, largest: int = LIMIT
) -> tuple[ir.Value, list[ir.Value], list[ir.Value]]:
    """The 32 float32 numbers at x: the scale, two vectors of whole numbers, int32, and their sums, float32:
    of each, and of both.

    The number of largest magnitude becomes `largest`.
    """
    halves = [load(b, x, VF32, 64 * i) for i in range(2)]
    # As whole numbers the bits of magnitudes are in the same order, and those of NaN are above all: the scale
    # then is NaN, and the sum.
    bits = [b.and_(b.bitcast(half, VI32), const_vector(0x7FFFFFFF, VI32)) for half in halves]
    top = b.bitcast(reduce(b, _larger(b, *bits), lambda p, q: _larger(b, p, q)), F32)
    inverse = splat(
        b,
        b.select(
            b.fcmp_ordered(">", top, const_f32(_LEAST)),
            b.fdiv(const_f32(float(largest)), top),
            const_f32(0.0),
        ),
    )
    scale = b.select(
        b.fcmp_ordered("<=", top, const_f32(_LEAST)), const_f32(0.0), b.fmul(top, const_f32(1.0 / largest))
    )
    numbers = []
    for half in halves:
        ratio = b.fmul(half, inverse)
        ratio = b.select(b.fcmp_ordered("ord", ratio, ratio), ratio, const_vector(0.0))
        numbers.append(rint(b, ratio))
    # Whole numbers far below 2^24: float32 adds them up exactly.
    sums = [reduce(b, number, b.fadd) for number in numbers]
    return scale, [b.fptosi(number, VI32) for number in numbers], [*sums, b.fadd(*sums)]


def _emit_packed(b: ir.IRBuilder, x: ir.Value, record: ir.Value) -> None:
    scale, numbers, sums = quantise(b, x)
    for i, number in enumerate(numbers):
        whole = b.sitofp(number, VF32)
        high = b.fptosi(floor(b, fma(b, whole, const_vector(1.0 / BASE), const_vector(0.5))), VI32)
        low = b.sub(number, b.mul(high, const_vector(BASE, VI32)))
        for at, part in ((0, high), (LOW, low)):
            store(b, b.trunc(part, _VI8), record, at + LANES * i)
    store(b, scale, record, SCALE)
    for i, total in enumerate(sums):
        store(b, b.fmul(total, scale), record, SUMS + 4 * i)
        store(b, b.neg(b.fptosi(total, I32)), record, INTEGER_SUMS + 4 * i)


def _emit_row(b: ir.IRBuilder, x: Any, count: Any, packed: Any) -> None:
    with counted_loop(b, count) as i:
        _emit_packed(
            b,
            b.add(x, b.mul(i, ir.Constant(I64, 4 * FEATURES))),
            b.add(packed, b.mul(i, ir.Constant(I64, PACKED_BYTES))),
        )


quantise_row = intrinsic_function("quantise_row", types.void, (types.int64,) * 3, _emit_row)
"""quantise_row(x, count, packed): 32 `count` float32 numbers to `count` blocks."""
