"""What both small-batch attention kernels share: columns, reductions, soft cap, and partial results.

A *column* is a query head at a row of the step. The columns that share a key/value head are numbered row by
row, and a block takes `COLUMNS` of them. Positions are divided into chunks of 64: chunk c belongs to split c
& (splits - 1), whatever the rows. So the order of a column's sums depends only on its own position.

In a step over several sequences no block has columns of two runs (the rows of one sequence), and each row has
2^`row_shift` blocks: more than are needed if the run's rows share blocks. So the grid depends only on the
number of rows, not on where they belong.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    block_z,
    exp2,
    fma,
    ld_i32,
    maximum,
    reciprocal,
    shfl_xor_f32,
    static,
    to_float,
    to_int,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import LOG2_E, run_of

CHUNK = 64
"""Positions of a chunk: a quarter of a page."""
HEAD = 4
"""Numbers before a column's partial output: maximum and sum of its split, and two unused."""
LOWEST = -1.0e30
"""Below every score. Finite, because the compiler assumes that infinities do not occur."""


def row_of(column: int, ratio: int) -> int:
    """column / ratio, rounded down."""
    return to_int(fma(to_float(column) + float32(0.5), reciprocal(to_float(ratio)), float32(-0.5)))


def run_columns(positions: int, runs: int, ratio: int, row_shift: int, columns: int) -> Any:
    """In a step over several sequences: the position of row 0 if it belonged to this block's run, the block's
    first column, the row after the run's last, and where the run's block table begins.
    """
    row = int32(block_z() >> row_shift)
    first, stop, table = run_of(runs, row)
    start = int32(ld_i32(positions + 4 * int64(row)) - row)
    blocks = int32(block_z() - int32(first << row_shift))
    return start, int32(int32(first * ratio) + int32(blocks * columns)), stop, table


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


def sees(p0: int, low_a: int, own_a: int, low_b: int, own_b: int) -> int:
    """Four bits: whether two columns see positions p0 and p0 + 8."""
    p1 = int32(p0 + 8)
    one, two = (
        int32(1) if p0 > low_a and p0 <= own_a else int32(0),
        int32(2) if p0 > low_b and p0 <= own_b else int32(0),
    )
    four, eight = (
        int32(4) if p1 > low_a and p1 <= own_a else int32(0),
        int32(8) if p1 > low_b and p1 <= own_b else int32(0),
    )
    return int32(int32(one | two) | int32(four | eight))
