"""What both small-batch attention kernels share: columns, reductions, soft cap, and partial results.

A *column* is a query head at a row of the step. The columns that share a key/value head are numbered row by
row, and a block takes `COLUMNS` of them. Positions are divided into chunks of 64: chunk c belongs to split c
& (splits - 1), whatever the rows. So the order of a column's sums depends only on its own position.
"""

from __future__ import annotations

from engine.backends.cuda.codegen.ptx import (
    exp2,
    fma,
    maximum,
    reciprocal,
    shfl_xor_f32,
    static,
    to_float,
    to_int,
)
from engine.backends.cuda.codegen.words import float32, int32
from engine.backends.cuda.kernels.common import LOG2_E

CHUNK = 64
"""Positions of a chunk: a quarter of a page."""
HEAD = 4
"""Numbers before a column's partial output: maximum and sum of its split, and two unused."""
LOWEST = -1.0e30
"""Below every score. Finite, because the compiler assumes that infinities do not occur."""


def row_of(column: int, ratio: int) -> int:
    """column / ratio, rounded down."""
    return to_int(fma(to_float(column) + float32(0.5), reciprocal(to_float(ratio)), float32(-0.5)))


def capped(score: float, cap: float) -> float:
    """log2(e) cap tanh(score / cap)."""
    over = exp2(score * (float32(2.0 * LOG2_E) * reciprocal(cap))) + float32(1.0)
    return cap * float32(LOG2_E) * (float32(1.0) - float32(2.0) * reciprocal(over))


def rows_sum(x: float) -> float:
    """The sum over the eight lanes with the same last two bits."""
    for i in static(range(3)):
        x = x + shfl_xor_f32(x, int32(16 >> i))
    return x


def rows_maximum(x: float) -> float:
    """The maximum over the eight lanes with the same last two bits."""
    for i in static(range(3)):
        x = maximum(x, shfl_xor_f32(x, int32(16 >> i)))
    return x
