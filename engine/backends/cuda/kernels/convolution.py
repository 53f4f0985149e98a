"""Causal convolutions over time, each column alone, which advance the states of sequences.

Layout of a state: (K - 1, stride of a row). Formula: see `Ops.convolve`. A column's sum has the same bits in
every cut of a text into passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    ld_f32,
    ldg_f32,
    registers,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import run_of, state_after, state_before
from engine.backends.cuda.lowering.call import Argument, Blocks, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import Convolution

THREADS = 128
ROWS = 64
"""Rows of a block, more than a state has."""
AT_ONCE = 4
"""Taps whose numbers are loaded at once."""


def _convolve(
    x: int, y: int, stride: int, weight: int, bias: int, width: int, taps: int, state: int, state_bytes: int,
    positions: int, states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    """y[t] = bias + the sum over j of weight[j] x[t - K + 1 + j], by column, and the state after the rows.

    x, y: float32 with rows of `stride` bytes. weight (K, width), bias (width,) or 0. Grid (chunk of ROWS
    rows, chunk of THREADS columns), or with `runs` (row, chunk of columns), where the first row's block has
    its run.
    """
    column = int32(block_y() * THREADS + thread())
    begin, end = int32(int32(block_x()) * ROWS), rows
    first = int32(0)
    wait_for_others()
    if runs != 0:
        first, end, _ = run_of(runs, int32(block_x()))
        begin = int32(block_x())
        if first != begin:
            end = begin
    if column < width and begin < end:
        old = state_before(states, positions, first)
        before = state + int64(old) * state_bytes + 4 * int64(column)
        taken, offset = x + 4 * int64(column), 4 * int64(width)
        last = int32(begin + ROWS)
        if last > end:
            last = end
        for t in range(begin, last):
            total = float32(0.0)
            if bias != 0:
                total = ldg_f32(bias + 4 * int64(column))
            for tap in range(0, taps, AT_ONCE):
                value = registers(float32(0.0), AT_ONCE)
                times = registers(float32(0.0), AT_ONCE)
                for i in static(range(AT_ONCE)):
                    j = int32(tap + i)
                    row = int32(t - taps + 1 + j)
                    if j < taps:
                        times[i] = ldg_f32(weight + int64(j) * offset + 4 * int64(column))
                        if row >= first:
                            value[i] = ld_f32(taken + int64(row) * stride)
                        elif old >= 0:
                            value[i] = ld_f32(before + int64(row - first + taps - 1) * stride)
                for i in static(range(AT_ONCE)):
                    if int32(tap + i) < taps:
                        total = fma(times[i], value[i], total)
            st_f32(y + int64(t) * stride + 4 * int64(column), total)
        if begin == first:
            # The only block that reads the old state writes the new one, which may be the same.
            count = int32(end - first)
            number = state_after(states, positions, first, count)
            after = state + int64(number) * state_bytes + 4 * int64(column)
            for j in range(int32(taps - 1)):
                row = int32(count - taps + 1 + j)
                kept = float32(0.0)
                if row >= 0:
                    kept = ld_f32(taken + int64(first + row) * stride)
                elif old >= 0:
                    kept = ld_f32(before + int64(j + count) * stride)
                st_f32(after + int64(j) * stride, kept)


@cache
def convolve_kernel() -> Kernel:
    constants = {"THREADS": THREADS, "ROWS": ROWS, "AT_ONCE": AT_ONCE}
    return Kernel("convolve", _convolve, "lllll" + "ii" + "ll" + "lll" + "i", THREADS, 64, constants)


def _convolution(context: Context, node: Convolution) -> Calls:
    x, y, shape, device = node.x, node.y, node.shape, node.device
    assert shape.taps <= ROWS
    chunks = -(-x.width // THREADS)
    arguments: tuple[Argument, ...] = (
        x, y, x.stride, context.vector(node.weight, device), context.vector(node.bias, device), x.width,
        shape.taps, context.cache.state_address(node.part), 4 * shape.floats, Runtime.POSITIONS,
        Runtime.STATES, Runtime.RUNS, Runtime.ROWS,
    )  # fmt: skip
    written = (y, ("state", node.part))
    several = Call(convolve_kernel(), lambda rows: (rows, chunks, 1), arguments, (x,), written)
    blocks: Blocks = lambda rows: (-(-rows // ROWS), chunks, 1)  # noqa: E731
    return (Call(convolve_kernel(), blocks, arguments, (x,), written, several=several),)


LOWER: Table = {Convolution: _convolution}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield convolve_kernel()
