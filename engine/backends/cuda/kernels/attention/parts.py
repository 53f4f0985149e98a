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
    bits_float,
    block_z,
    exp2,
    float_bits,
    fma,
    ld_i32,
    ldg_f32x2,
    maximum,
    reciprocal,
    shfl_xor_f32,
    static,
    to_float,
    to_int,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.common import LOG2_E, run_of

CHUNK = 64
"""Positions of a chunk: a quarter of a page."""
HEAD = 4
"""Numbers before a column's partial output: maximum and sum of its split, and two unused."""
LOWEST = -1.0e30
"""Below every score. Finite, because the compiler assumes that infinities do not occur."""
CHUNKED = 0
"""1 if windows start over at each of their multiples."""
ALIBI = 0
"""1 if scores have ALiBi's part, 2 if that is rounded (`AttentionShape.rounded_slopes`)."""


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


def unseen(own: int, window: int) -> int:
    """The last position before the window of a row, -1 if there is none."""
    low = int32(own - window)
    if CHUNKED == 1:
        low = int32(int32(row_of(own, window) * window) - 1)
        # The quotient of large numbers may be off by one.
        low = int32(low - window) if low >= own else low
        low = int32(low + window) if int32(own - low) > window else low
    return low if window > 0 and low > -1 else int32(-1)


def slope_of(slopes: int, index: int, ratio: int, first_head: int) -> Any:
    """The slope of a column, and what multiplies its rounded products; zeros without ALiBi."""
    slope, rounded = float32(0.0), float32(0.0)
    if ALIBI > 0:
        head = int32(first_head + int32(index - int32(row_of(index, ratio) * ratio)))
        slope, rounded = ldg_f32x2(slopes + 8 * int64(head))
    return slope, rounded


def in_bf16(x: float) -> float:
    """The nearest bfloat16, the even one of two."""
    bits = uint32(float_bits(x))
    half = uint32(uint32(0x7FFF) + uint32(uint32(bits >> uint32(16)) & uint32(1)))
    return bits_float(uint32(uint32(bits + half) & uint32(0xFFFF0000)))


def leaning(score: float, slope: float, rounded: float, place: int, own: int) -> float:
    """A score in base 2, plus ALiBi's part for a key at `place` and a query at `own`."""
    if ALIBI == 1:
        return fma(slope * float32(LOG2_E), to_float(int32(place - own)), score)
    if ALIBI == 2:
        return fma(rounded * float32(LOG2_E), in_bf16(slope * in_bf16(to_float(place))), score)
    return score


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
