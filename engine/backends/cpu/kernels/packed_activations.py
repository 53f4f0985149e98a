"""Activations as 16-bit integers with one scale for each 32 of them: the input of products with codes.

A block of 32 features takes 96 bytes: 32 high bytes and 32 low bytes (see `simd_bytes`); float32: the scale
s, and s times the sums of the first 16 integers, of the last 16 and of all; int32: those three sums negated;
and 4 bytes of padding. The error of a value is at most 1 / 65000 of the largest magnitude of its block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
    WIDE,
    const_vector,
    counted_loop,
    floor,
    fma,
    intrinsic_function,
    lane,
    load,
    reduce_each,
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
AT_ONCE = 4 if WIDE else 1
"""Blocks that are quantised together: their maxima and sums are shuffled into one vector."""
_VI8 = ir.VectorType(I8, LANES)


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


class Quantised(NamedTuple):
    """A block of 32 values as scale * integer: the scale; the integers, two vectors of float32; and their
    float32 sums: of the first vector, the second, both.
    """

    scale: ir.Value
    numbers: list[ir.Value]
    sums: list[ir.Value]


def quantise(b: ir.IRBuilder, x: ir.Value, blocks: int = 1, largest: int = LIMIT) -> list[Quantised]:
    """Quantise 1, 2 or 4 blocks of 32 float32 values at x; the largest magnitude of a block becomes `largest`
    or -`largest`.
    """
    parts = [load(b, x, VF32, 64 * i) for i in range(2 * blocks)]
    # The bits of magnitudes, compared as integers, have the same order, and those of NaN are the largest: a
    # block with NaN gets NaN as its scale and sums.
    bits = [b.and_(b.bitcast(half, VI32), const_vector(0x7FFFFFFF, VI32)) for half in parts]
    each = ir.VectorType(F32, blocks)

    def constant(value: float) -> ir.Value:
        return ir.Constant(each, [ir.Constant(F32, value)] * blocks)

    tops = [_larger(b, *pair) for pair in zip(bits[::2], bits[1::2], strict=True)]
    top = b.bitcast(reduce_each(b, tops, partial(_larger, b)), each)
    inverse = b.select(
        b.fcmp_ordered(">", top, constant(_SMALLEST)), b.fdiv(constant(float(largest)), top), constant(0.0)
    )
    scale = b.select(
        b.fcmp_ordered("<=", top, constant(_SMALLEST)), constant(0.0), b.fmul(top, constant(1.0 / largest))
    )
    numbers = []
    for i, half in enumerate(parts):
        ratio = b.fmul(half, splat(b, lane(b, inverse, i // 2)))
        ratio = b.select(b.fcmp_ordered("ord", ratio, ratio), ratio, const_vector(0.0))
        numbers.append(rint(b, ratio))
    # Integers far below 2^24: float32 adds them exactly, in any order.
    sums, found = reduce_each(b, numbers, b.fadd), list[Quantised]()
    for i in range(blocks):
        pair = [lane(b, sums, 2 * i + n) for n in range(2)]
        found.append(Quantised(lane(b, scale, i), numbers[2 * i : 2 * i + 2], [*pair, b.fadd(*pair)]))
    return found


def each_quantised(
    b: ir.IRBuilder, x: ir.Value, count: ir.Value, put: Callable[[ir.Value, Quantised], None],
    largest: int = LIMIT,
) -> None:  # fmt: skip
    """Emit put(i, block number i) for each of the `count` blocks of 32 float32 values at x."""
    done = ir.Constant(I64, 0)
    for blocks in sorted({AT_ONCE, 1}, reverse=True):
        times = b.udiv(b.sub(count, done), ir.Constant(I64, blocks))
        with counted_loop(b, times) as n:
            first = b.add(done, b.mul(n, ir.Constant(I64, blocks)))
            place = b.add(x, b.mul(first, ir.Constant(I64, 4 * FEATURES)))
            for i, block in enumerate(quantise(b, place, blocks, largest)):
                put(b.add(first, ir.Constant(I64, i)), block)
        done = b.mul(times, ir.Constant(I64, blocks))


def high_byte(b: ir.IRBuilder, whole: ir.Value) -> ir.Value:
    """The high bytes of 16-bit integers; both float32 (16)."""
    return floor(b, fma(b, whole, const_vector(1.0 / BASE), const_vector(0.5)))


def _emit_row(b: ir.IRBuilder, x: Any, count: Any, packed: Any) -> None:
    def put(i: ir.Value, block: Quantised) -> None:
        target = b.add(packed, b.mul(i, ir.Constant(I64, PACKED_BYTES)))
        for n, number in enumerate(block.numbers):
            high = high_byte(b, number)
            low = b.fsub(number, b.fmul(high, const_vector(float(BASE))))
            for at, part in ((0, high), (LOW, low)):
                store(b, b.trunc(b.fptosi(part, VI32), _VI8), target, at + LANES * n)
        store(b, block.scale, target, SCALE)
        for n, total in enumerate(block.sums):
            store(b, b.fmul(total, block.scale), target, SUMS + 4 * n)
            store(b, b.neg(b.fptosi(total, I32)), target, INTEGER_SUMS + 4 * n)

    each_quantised(b, x, count, put)


quantise_row = intrinsic_function("quantise_row", types.void, (types.int64,) * 3, _emit_row)
"""quantise_row(x, count, packed): 32 `count` float32 values to `count` blocks."""
