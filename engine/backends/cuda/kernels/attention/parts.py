"""What both forms of attention for few rows do alike: columns, turning, soft cap, and where partial results
lie.

A *column* is a query head at a row of the step. Those that share a key/value head are numbered row by row,
and a block takes `COLUMNS` of them. Positions are shared out by chunks of 64: chunk c belongs to split c &
(splits - 1), whatever the rows. So a column's sums are taken in one order, which its own position alone
decides.
"""

from __future__ import annotations

from engine.backends.cuda.codegen.ptx import exp2, fma, maximum, reciprocal, static, to_float, to_int, xor_f
from engine.backends.cuda.codegen.words import float32, int32

CHUNK = 64
"""Positions of a chunk: a quarter of a page."""
HEAD = 4
"""Numbers before a column's partial output: the maximum and the sum of its split, and two of no meaning."""
LOWEST = -1.0e30
"""Below every score that is a number; a finite one, for the compiler takes infinities to be impossible."""
LOG2_E = 1.4426950408889634


def row_of(column: int, ratio: int) -> int:
    """column / ratio, rounded down."""
    return to_int(fma(to_float(column) + float32(0.5), reciprocal(to_float(ratio)), float32(-0.5)))


def turned_lane(x: float, lane: int) -> float:
    """The orthonormal Walsh-Hadamard transform of 32 numbers, one a lane; its own inverse."""
    for i in static(range(5)):
        other = xor_f(x, int32(1 << i))
        x = other - x if (lane & (1 << i)) != 0 else other + x
    return x * float32(0.17677669529663687)


def capped(score: float, cap: float) -> float:
    """log2(e) cap tanh(score / cap)."""
    over = exp2(score * (float32(2.0 * LOG2_E) * reciprocal(cap))) + float32(1.0)
    return cap * float32(LOG2_E) * (float32(1.0) - float32(2.0) * reciprocal(over))


def warp_sum(x: float) -> float:
    """Of all lanes."""
    for i in static(range(5)):
        x = x + xor_f(x, int32(16 >> i))
    return x


def warp_maximum(x: float) -> float:
    """Of all lanes."""
    for i in static(range(5)):
        x = maximum(x, xor_f(x, int32(16 >> i)))
    return x


def rows_sum(x: float) -> float:
    """Of the eight lanes that agree in their last two bits."""
    for i in static(range(3)):
        x = x + xor_f(x, int32(16 >> i))
    return x


def rows_maximum(x: float) -> float:
    """The largest of the eight lanes that agree in their last two bits."""
    for i in static(range(3)):
        x = maximum(x, xor_f(x, int32(16 >> i)))
    return x
