"""The exponentially weighted mean of RWKV-4, of each channel alone. Formulas: see `Ops.weighted_mean`.

A state is three rows of whole vectors: the sums of values and of weights as shares of e^m, and m. So no
exponential overflows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.simd import (
    I64,
    VF32,
    const_vector,
    counted_loop,
    exp_vector,
    fma,
    intrinsic_function,
    load,
    store,
)
from engine.backends.cpu.kernels.recurrent import ANY, copy_state
from engine.backends.cpu.lowering.call import Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import (
    RUN_FIRST,
    RUN_FROM,
    RUN_ROWS,
    RUN_TABLE,
    RUN_TO,
    RUN_WORDS,
    RUNS,
)
from engine.backends.graph.recurrent import WeightedMean
from engine.backends.states import NO_WEIGHT

(W_K, W_K_STRIDE, W_V, W_V_STRIDE, W_Y, W_Y_STRIDE, W_DECAY, W_FIRST, W_VECTORS, W_STATE,
 W_STATE_BYTES) = range(11)  # fmt: skip
"""Inputs and the result with their strides; the two weights; vectors of a row; the first state and each one's
bytes.
"""
AT_ONCE = 4
"""Vectors of a tile."""


def _emit_begin(b: ir.IRBuilder, state: Any, row: Any, vectors: Any) -> None:
    """The state before a text."""
    with counted_loop(b, vectors) as i:
        at = b.add(state, b.mul(i, ir.Constant(I64, 64)))
        for number in range(3):
            start = const_vector(NO_WEIGHT if number == 2 else 0.0)
            store(b, start, b.add(at, b.mul(row, ir.Constant(I64, number))))


def _emit_mean(
    b: ir.IRBuilder, k: Any, v: Any, y: Any, decay: Any, first: Any, state: Any, row: Any, vectors: Any
) -> None:
    """One row of a tile."""
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        key, value, fall, own = (load(b, b.add(each, offset), VF32) for each in (k, v, decay, first))
        places = [b.add(b.add(state, offset), b.mul(row, ir.Constant(I64, number))) for number in range(3)]
        total, weight, most = (load(b, place, VF32) for place in places)

        def joined(old: Any, new: Any, value: Any = value, total: Any = total, weight: Any = weight) -> Any:
            """The sums with weights e^old and e^new, as shares of the larger, and its exponent."""
            top = b.select(b.fcmp_ordered(">", old, new), old, new)
            kept, added = (exp_vector(b, b.fsub(each, top)) for each in (old, new))
            return fma(b, kept, total, b.fmul(added, value)), fma(b, kept, weight, added), top

        above, below, _unused = joined(most, b.fadd(key, own))
        store(b, b.fdiv(above, below), b.add(y, offset))
        for each, place in zip(joined(b.fadd(most, fall), key), places, strict=True):
            store(b, each, place)


begin_mean = intrinsic_function("begin_mean", types.void, (types.int64,) * 3, _emit_begin)
mean_row = intrinsic_function("mean_row", types.void, (types.int64,) * 8, _emit_mean)


def weighted_mean(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `AT_ONCE` vectors of a row."""
    offset, whole = 64 * AT_ONCE * tile, ld_i64(args + 8 * W_VECTORS)
    vectors, row = min(AT_ONCE, whole - AT_ONCE * tile), 64 * whole
    states, state_bytes = ld_i64(args + 8 * W_STATE) + offset, ld_i64(args + 8 * W_STATE_BYTES)
    decay, own = ld_i64(args + 8 * W_DECAY) + offset, ld_i64(args + 8 * W_FIRST) + offset
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        before, state = ld_i64(run + 8 * RUN_FROM), states + state_bytes * ld_i64(run + 8 * RUN_TO)
        if before < 0:
            begin_mean(state, row, vectors)
        elif states + state_bytes * before != state:
            for number in range(3):
                copy_state(states + state_bytes * before + number * row, state + number * row, vectors)
        start = ld_i64(run + 8 * RUN_FIRST)
        for t in range(start, start + ld_i64(run + 8 * RUN_ROWS)):
            mean_row(
                ld_i64(args + 8 * W_K) + t * ld_i64(args + 8 * W_K_STRIDE) + offset,
                ld_i64(args + 8 * W_V) + t * ld_i64(args + 8 * W_V_STRIDE) + offset,
                ld_i64(args + 8 * W_Y) + t * ld_i64(args + 8 * W_Y_STRIDE) + offset,
                decay, own, state, row, vectors,
            )  # fmt: skip


# --- lowering -----------------------------------------------------------------------------------------------


def _lower(calls: Calls, node: WeightedMean) -> None:
    k, v, y, shape = node.k, node.v, node.y, node.shape
    vectors = shape.floats // 48
    arguments: list[Argument] = [
        k, k.stride, v, v.stride, y, y.stride, calls.constants.vector(node.decay),
        calls.constants.vector(node.first), vectors, calls.cache.state_address(node.part),
        4 * shape.floats,
    ]  # fmt: skip
    tiles = -(-vectors // AT_ONCE)
    calls.add("weighted_mean", arguments, [k, v], [y, ("state", node.part)], tiles=(tiles, ANY, tiles, ANY))


LOWER: Table = {WeightedMean: _lower}
