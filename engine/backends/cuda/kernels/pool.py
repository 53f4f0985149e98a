"""Keys of blocks of positions: see `PoolShape` and `Ops.pool`.

A thread has a column. A set of positions has three sums: the largest gate m, the sum of the weights e^(g - m)
and the weighted sum of the values. The sets are those of the block, of it for the block after it, and of the
block before for this one; a state has their rows in turn. A column's sums have the same bits in every cut of
a text into passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    ld_f32,
    ld_i32,
    ldg_f32,
    maximum,
    reciprocal,
    registers,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import run_of, state_after, state_before
from engine.backends.cuda.kernels.pointwise import exponential
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import Pool

THREADS, ROWS = 64, 64
"""Columns of a thread block, and rows, or more if a block of positions has many."""
SERIES, SETS = 1, 1
"""Series of values, and sets of sums: 2 and 3 if blocks overlap."""
NOTHING = -1e30
"""The largest gate of no position: its weight is 0, and no difference with it is infinite."""


def _empty(sums: Any) -> None:
    """The sums of no position."""
    for i in static(range(3 * SETS)):
        sums[i] = float32(NOTHING if i % 3 == 0 else 0.0)


def _begin(sums: Any) -> None:
    """A block begins: what the one before has for it is kept."""
    if SETS == 3:
        for i in static(range(3)):
            sums[6 + i] = sums[3 + i]
    for i in static(range(3 * SERIES)):
        sums[i] = float32(NOTHING if i % 3 == 0 else 0.0)


def _add(sums: Any, own: int, gate: float, value: float) -> None:
    """Add a position to the set whose sums begin at `own`."""
    top = maximum(sums[own], gate)
    less, share = exponential(sums[own] - top), exponential(gate - top)
    sums[own] = top
    sums[own + 1] = sums[own + 1] * less + share
    sums[own + 2] = sums[own + 2] * less + value * share


def _key(sums: Any) -> float:
    """The weighted mean over the block, and over the one before if blocks overlap."""
    total, weighted = sums[1], sums[2]
    if SETS == 3:
        top = maximum(sums[0], sums[6])
        less, share = exponential(sums[0] - top), exponential(sums[6] - top)
        total, weighted = total * less + sums[7] * share, weighted * less + sums[8] * share
    return weighted * reciprocal(total)


def _walk(
    sums: Any, t: int, begin: int, end: int, place: int, block: int, values: int, values_stride: int,
    gates: int, gates_stride: int, next_values: int, next_stride: int, next_gates: int,
    next_gates_stride: int, y: int, stride: int, bias: int, width: int,
) -> None:  # fmt: skip
    """Add rows t .. end - 1, the first of which is at `place` in its block; the keys from `begin` on are
    written.
    """
    while t < end:
        if place == 0:
            _begin(sums)
        at, row = bias + 4 * int64(place) * int64(width), int64(t)
        gate = ld_f32(gates + row * gates_stride) + ldg_f32(at)
        _add(sums, 0, gate, ld_f32(values + row * values_stride))
        if SERIES == 2:
            gate = ld_f32(next_gates + row * next_gates_stride) + ldg_f32(
                at + 4 * int64(block) * int64(width)
            )
            _add(sums, 3, gate, ld_f32(next_values + row * next_stride))
        if t >= begin:
            key = _key(sums)
            st_f32(y + row * stride, key)
        t, place = int32(t + 1), int32(place + 1)
        place = int32(0) if place == block else place


def _first_row(row: int, place: int, block: int) -> int:
    """The first row of which a key at `place` in its block knows."""
    return int32(int32(row - place) - (block if SERIES == 2 else int32(0)))


def _pool(
    values: int, values_stride: int, gates: int, gates_stride: int, next_values: int, next_stride: int,
    next_gates: int, next_gates_stride: int, y: int, stride: int, bias: int, width: int, block: int,
    chunk: int, state: int, state_bytes: int, positions: int, states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    """y = the keys of the rows' blocks up to each row, and the state after them. Grid (chunk of `chunk` rows,
    chunk of THREADS columns), or with `runs` (row, chunk of columns), where the first row's block has its
    run.

    Both series of values and gates: float32, strides in bytes, the second 0 where there is none; y and the
    rows of a state have the same `stride`. `bias` (SERIES, block, width) float32.
    """
    column = int32(block_y() * THREADS + thread())
    begin, end, first = int32(int32(block_x()) * chunk), rows, int32(0)
    wait_for_others()
    if runs != 0:
        first, end, _ = run_of(runs, int32(block_x()))
        begin = int32(block_x())
        if first != begin:
            end = begin
    if column < width and begin < end:
        offset, last = 4 * int64(column), int32(min(int32(begin + chunk), end))
        start = int32(ld_i32(positions + 4 * int64(first)))
        place = int32(int32(start + int32(begin - first)) % block)
        sums = registers(float32(0.0), 3 * SETS)
        _empty(sums)
        old = state_before(states, positions, first)
        t = _first_row(begin, place, block)
        # Other chunks are so long that all they know of is in this pass.
        if t < first:
            t = first
            if old >= 0:
                for i in static(range(3 * SETS)):
                    sums[i] = ld_f32(state + int64(old) * state_bytes + int64(i) * stride + offset)
        _walk(
            sums, t, begin, last, int32(int32(start + int32(t - first)) % block), block, values + offset,
            values_stride, gates + offset, gates_stride, next_values + offset, next_stride,
            next_gates + offset, next_gates_stride, y + offset, stride, bias + offset, width,
        )  # fmt: skip
        if begin == first:
            # The only block that reads the old state writes the new one, which may be the same.
            if last < end:
                place = int32(int32(start + int32(int32(end - 1) - first)) % block)
                t = _first_row(int32(end - 1), place, block)
                if t > last:
                    last = t
                    _empty(sums)
                _walk(
                    sums, last, end, end, int32(int32(start + int32(last - first)) % block), block,
                    values + offset, values_stride, gates + offset, gates_stride, next_values + offset,
                    next_stride, next_gates + offset, next_gates_stride, y + offset, stride, bias + offset,
                    width,
                )  # fmt: skip
            number = state_after(states, positions, first, int32(end - first))
            for i in static(range(3 * SETS)):
                st_f32(state + int64(number) * state_bytes + int64(i) * stride + offset, sums[i])


@cache
def pool_kernel(overlapping: bool) -> Kernel:
    series, sets = (2, 3) if overlapping else (1, 1)
    constants = {"THREADS": THREADS, "SERIES": series, "SETS": sets, "NOTHING": NOTHING}
    name = f"pool{'_overlapping' * overlapping}"
    return Kernel(name, _pool, "l" * 11 + "iii" + "l" * 5 + "i", THREADS, 80, constants)


def _lower(context: Context, node: Pool) -> Calls:
    y, shape = node.y, node.shape
    series: list[Argument] = []
    for values, gates in zip(node.values, node.gates, strict=True):
        series += [values, values.stride, gates, gates.stride]
    chunk, chunks = max(ROWS, 2 * shape.block), -(-shape.dim // THREADS)
    arguments: tuple[Argument, ...] = (
        *series, *([0] * (8 - len(series))), y, y.stride, context.vector(node.bias, node.device), shape.dim,
        shape.block, chunk, context.cache.state_address(node.part), 4 * shape.floats, Runtime.POSITIONS,
        Runtime.STATES, Runtime.RUNS, Runtime.ROWS,
    )  # fmt: skip
    kernel, written = pool_kernel(shape.overlapping), (y, ("state", node.part))
    several = Call(kernel, lambda rows: (rows, chunks, 1), arguments, node.reads, written)
    return (
        Call(
            kernel, lambda rows: (-(-rows // chunk), chunks, 1), arguments, node.reads, written,
            several=several,
        ),
    )  # fmt: skip


LOWER: Table = {Pool: _lower}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: no model with overlapping blocks runs on GPUs yet."""
    yield pool_kernel(False)
