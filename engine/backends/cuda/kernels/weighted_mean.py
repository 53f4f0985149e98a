"""The exponentially weighted mean of RWKV-4, of each channel alone. Formulas: see `Ops.weighted_mean`.

A thread has a channel. A state is three rows: the sums of values and of weights as shares of e^m, and m. So
no exponential overflows. A channel's sums have the same bits in every cut of a text into passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    ld_f32,
    ldg_f32,
    maximum,
    reciprocal,
    registers,
    st_f32,
    static,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import run_of, state_after, state_before
from engine.backends.cuda.kernels.recurrent_parts import power
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import WeightedMean
from engine.backends.states import NO_WEIGHT

THREADS = 64
AT_ONCE = 4
"""Rows whose numbers are loaded at once."""


def _add_row(sums: Any, key: float, value: float, decay: float, first: float) -> float:
    """The mean at a row, which is then added to the sums: of values, of weights, and their exponent."""
    own = key + first
    top = maximum(sums[2], own)
    kept, added = power(sums[2] - top), power(own - top)
    mean = fma(kept, sums[0], added * value) * reciprocal(fma(kept, sums[1], added))
    older = sums[2] + decay
    top = maximum(older, key)
    kept, added = power(older - top), power(key - top)
    sums[0] = fma(kept, sums[0], added * value)
    sums[1] = fma(kept, sums[1], added)
    sums[2] = top
    return mean


def _weighted_mean(
    k: int, k_stride: int, v: int, v_stride: int, y: int, stride: int, decay: int, bonus: int, width: int,
    state: int, state_bytes: int, positions: int, states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    """`Ops.weighted_mean`. Grid (chunk of THREADS channels, 1), or with `runs` (chunk of channels, row),
    where the first row's block has its run.

    k, v, y (rows, width): float32, strides in bytes; y and the rows of a state have the same `stride`. decay
    and bonus, which is added to a row's own key, float32 (width,).
    """
    column, row = int32(block_x() * THREADS + thread()), int32(block_y())
    wait_for_others()
    first, stop = int32(0), rows
    if runs != 0:
        first, stop, _ = run_of(runs, row)
    if first == row and column < width:
        offset = 4 * int64(column)
        own_decay, own_bonus = ldg_f32(decay + offset), ldg_f32(bonus + offset)
        sums = registers(float32(0.0), 3)
        sums[2] = float32(NO_WEIGHT)
        old = state_before(states, positions, first)
        if old >= 0:
            for i in static(range(3)):
                sums[i] = ld_f32(state + int64(old) * state_bytes + int64(i) * stride + offset)
        t = first
        while t < stop:
            keys = registers(float32(0.0), AT_ONCE)
            values = registers(float32(0.0), AT_ONCE)
            for i in static(range(AT_ONCE)):
                if int32(t + i) < stop:
                    keys[i] = ld_f32(k + int64(t + i) * k_stride + offset)
                    values[i] = ld_f32(v + int64(t + i) * v_stride + offset)
            for i in static(range(AT_ONCE)):
                if int32(t + i) < stop:
                    mean = _add_row(sums, keys[i], values[i], own_decay, own_bonus)
                    st_f32(y + int64(t + i) * stride + offset, mean)
            t = unknown(int32(t + AT_ONCE))
        number = state_after(states, positions, first, int32(stop - first))
        for i in static(range(3)):
            st_f32(state + int64(number) * state_bytes + int64(i) * stride + offset, sums[i])


@cache
def weighted_mean_kernel() -> Kernel:
    constants = {"THREADS": THREADS, "AT_ONCE": AT_ONCE, "NO_WEIGHT": NO_WEIGHT}
    return Kernel("weighted_mean", _weighted_mean, "l" * 8 + "i" + "l" * 5 + "i", THREADS, 64, constants)


def _lower(context: Context, node: WeightedMean) -> Calls:
    k, v, y, shape, device = node.k, node.v, node.y, node.shape, node.device
    arguments: tuple[Argument, ...] = (
        k, k.stride, v, v.stride, y, y.stride, context.vector(node.decay, device),
        context.vector(node.first, device), shape.channels, context.cache.state_address(node.part),
        4 * shape.floats, Runtime.POSITIONS, Runtime.STATES, Runtime.RUNS, Runtime.ROWS,
    )  # fmt: skip
    kernel, written, chunks = weighted_mean_kernel(), (y, ("state", node.part)), -(-shape.channels // THREADS)
    several = Call(kernel, lambda rows: (chunks, rows, 1), arguments, node.reads, written)
    return (Call(kernel, lambda _: (chunks, 1, 1), arguments, node.reads, written, several=several),)


LOWER: Table = {WeightedMean: _lower}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield weighted_mean_kernel()
