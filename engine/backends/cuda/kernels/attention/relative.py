"""The bias of a `RelativeBias` in attention of small batches.

A kernel makes each row's biases of all heads, by distance, once; the attention kernels then load one number
for each score. `added` and `biases_of` replace `leaning` and `slope_of` of `parts` there, so nothing of it is
in the code of attention without such a bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    block_z,
    blocks_y,
    fma,
    ld_f32,
    ld_i32,
    ldg_f32,
    registers,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention.parts import row_of
from engine.backends.cuda.kernels.common import LOG2_E
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.buffers import Buffer

THREADS, HEADS = 128, 4
"""Distances and heads of a block."""
EXTENT = 1
"""The distance from which on nothing is added."""


def biases_of(biases: int, index: int, ratio: int, first_head: int) -> Any:
    """The address of a column's biases, and a number that is not used; in place of `slope_of`."""
    row, heads = row_of(index, ratio), int32(ratio * blocks_y())
    head = int32(first_head + int32(index - int32(row * ratio)))
    stride = int64(int32(int32(int32(heads * EXTENT) + 15) >> 4)) * 64  # as `Buffer.stride`
    return biases + int64(row) * stride + 4 * int64(int32(head * EXTENT)), float32(0.0)


def added(score: float, biases: int, unused: float, place: int, own: int) -> float:
    """A score in base 2, plus the bias of a query at `own` for a key at `place`; in place of `leaning`."""
    away = int32(own - place)
    if away >= 0 and away < EXTENT:
        return score + ld_f32(biases + 4 * int64(away))
    return score


def _biases(
    weights: int, weights_stride: int, profiles: int, y: int, y_stride: int, positions: int, heads: int,
    count: int, extent: int,
) -> None:  # fmt: skip
    """y[row, head, d] = log2(e) times the sum over j of weights[row, head, j] profiles[j, d], for the
    distances d that reach a position. Grid (row, chunk of THREADS distances, HEADS heads).

    weights (rows, heads, `count`) and y (rows, heads, `extent`): float32, strides in bytes; profiles (count,
    extent) float32; `positions`: address of the rows' positions.
    """
    wait_for_others()
    away, head = int32(int32(block_y() * THREADS) + thread()), int32(block_z() * HEADS)
    row = int64(block_x())
    if away < extent and away <= ld_i32(positions + 4 * row):
        total = registers(float32(0.0), HEADS)
        at = weights + row * weights_stride
        profile = profiles + 4 * int64(away)
        for j in range(count):
            number = ldg_f32(profile) * float32(LOG2_E)
            for i in static(range(HEADS)):
                own = int32(min(int32(head + i), int32(heads - 1)))
                total[i] = fma(ld_f32(at + 4 * int64(int32(int32(own * count) + int32(j)))), number, total[i])
            profile = profile + 4 * int64(extent)
        for i in static(range(HEADS)):
            if int32(head + i) < heads:
                st_f32(
                    y + row * y_stride + 4 * int64(int32(int32(int32(head + i) * extent) + away)), total[i]
                )


@cache
def biases_kernel() -> Kernel:
    constants = {"THREADS": THREADS, "HEADS": HEADS}
    return Kernel("relative_biases", _biases, "llllll" + "iii", THREADS, 56, constants)


def biases_call(weights: Buffer, profiles: int, y: Buffer, heads: int, extent: int) -> Call:
    """y (T, H * extent): what attention kernels for this extent add, of `weights` (T, H * R) and the profiles
    (R, extent) at an address.
    """
    chunks, parts = -(-extent // THREADS), -(-heads // HEADS)
    arguments = (
        weights, weights.stride, profiles, y, y.stride, Runtime.POSITIONS, heads, weights.width // heads,
        extent,
    )  # fmt: skip
    return Call(
        biases_kernel(), lambda rows: (rows, chunks, parts), arguments, (weights,), (y,),
        weights.on_logit_rows, weights.copies,
    )  # fmt: skip


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield biases_kernel()
