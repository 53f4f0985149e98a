"""Keys of blocks of positions: see `PoolShape` and `Ops.pool`.

A tile has some columns and goes through the rows of every run of the step in order. A state has sets of three
rows: the largest gate m, the sum of the weights e^(g - m), and the weighted sum of the values. The sets are
those of the block, of it for the block after it, and of the block before for this one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i32, ld_i64
from engine.backends.cpu.codegen.simd import (
    I64,
    VF32,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    store,
)
from engine.backends.cpu.kernels.attention.softmax import exp_negative, row_clear, row_fill
from engine.backends.cpu.kernels.recurrent import ANY, copy_state
from engine.backends.cpu.lowering.call import Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    RUN_FIRST,
    RUN_FROM,
    RUN_ROWS,
    RUN_TABLE,
    RUN_TO,
    RUN_WORDS,
    RUNS,
)
from engine.backends.graph.recurrent import Pool

(B_VALUES, B_VALUES_STRIDE, B_GATES, B_GATES_STRIDE, B_NEXT_VALUES, B_NEXT_STRIDE, B_NEXT_GATES,
 B_NEXT_GATES_STRIDE, B_Y, B_STRIDE, B_BIAS, B_BLOCK, B_STATE, B_STATE_BYTES) = range(14)  # fmt: skip
"""Both series and their strides (the second 0: there is none), the result, whose stride is that of the rows
of a state, too; the bias, one series after the other; positions of a block; the first state.
"""
POOLED = 4
"""Vectors of a tile."""
NOTHING = -1e30
"""The largest gate of no position: its weight is 0, and no difference with it is infinite."""


def _joined(b: ir.IRBuilder, one: list[Any], other: list[Any]) -> list[Any]:
    """The three sums of two sets of positions, from theirs."""
    top = b.select(b.fcmp_ordered(">", one[0], other[0]), one[0], other[0])
    first, second = (exp_negative(b, b.fsub(each[0], top)) for each in (one, other))
    rest = [fma(b, x, first, b.fmul(y, second)) for x, y in zip(one[1:], other[1:], strict=True)]
    return [top, *rest]


def _set(b: ir.IRBuilder, place: Any, stride: Any) -> list[Any]:
    """The addresses of a vector of each of the three rows."""
    return [b.add(place, b.mul(stride, ir.Constant(I64, row))) for row in range(3)]


def _emit_add(
    b: ir.IRBuilder, sums: Any, stride: Any, gate: Any, bias: Any, value: Any, vectors: Any
) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        places = _set(b, b.add(sums, offset), stride)
        g = b.fadd(load(b, b.add(gate, offset), VF32), load(b, b.add(bias, offset), VF32))
        own = [g, const_vector(1.0), load(b, b.add(value, offset), VF32)]
        made = _joined(b, [load(b, place, VF32) for place in places], own)
        for each, place in zip(made, places, strict=True):
            store(b, each, place)


def _emit_whole(b: ir.IRBuilder, own: Any, before: Any, stride: Any, y: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        one, other = (
            [load(b, place, VF32) for place in _set(b, b.add(each, offset), stride)] for each in (own, before)
        )
        _top, total, weighted = _joined(b, one, other)
        store(b, b.fdiv(weighted, total), b.add(y, offset))


add_position = intrinsic_function("pool_add", types.void, (types.int64,) * 6, _emit_add)
"""add_position(sums, stride, gate, bias, value, vectors): a set of sums with one more position."""
whole_key = intrinsic_function("pool_whole", types.void, (types.int64,) * 5, _emit_whole)
"""whole_key(own, before, stride, y, vectors): y = the key of two sets of positions together."""


def pool(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `POOLED` vectors of a row. The set of the block before is empty where series do not overlap:
    it then lies in scratch memory.
    """
    stride, block = ld_i64(args + 8 * B_STRIDE), ld_i64(args + 8 * B_BLOCK)
    offset = 64 * POOLED * tile
    vectors, size = min(POOLED, (stride - offset) // 64), 3 * stride
    following = ld_i64(args + 8 * B_NEXT_VALUES) != 0
    states, state_bytes = ld_i64(args + 8 * B_STATE) + offset, ld_i64(args + 8 * B_STATE_BYTES)
    bias, rows = ld_i64(args + 8 * B_BIAS) + offset, 9 if following else 3
    if not following:
        row_fill(scratch, vectors, NOTHING)
        row_clear(scratch + stride, vectors)
        row_clear(scratch + 2 * stride, vectors)
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        before, own = ld_i64(run + 8 * RUN_FROM), states + state_bytes * ld_i64(run + 8 * RUN_TO)
        old = states + state_bytes * before
        for j in range(rows):
            if before >= 0:
                copy_state(old + j * stride, own + j * stride, vectors)
            else:
                row_fill(own + j * stride, vectors, NOTHING if j % 3 == 0 else 0.0)
        last = own + 2 * size if following else scratch
        first = ld_i64(run + 8 * RUN_FIRST)
        for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
            place = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * t) % block
            if place == 0:
                for j in range(3):
                    if following:
                        copy_state(own + size + j * stride, last + j * stride, vectors)
                        row_fill(own + size + j * stride, vectors, NOTHING if j == 0 else 0.0)
                    row_fill(own + j * stride, vectors, NOTHING if j == 0 else 0.0)
            value = ld_i64(args + 8 * B_VALUES) + t * ld_i64(args + 8 * B_VALUES_STRIDE) + offset
            gate = ld_i64(args + 8 * B_GATES) + t * ld_i64(args + 8 * B_GATES_STRIDE) + offset
            add_position(own, stride, gate, bias + place * stride, value, vectors)
            if following:
                value = ld_i64(args + 8 * B_NEXT_VALUES) + t * ld_i64(args + 8 * B_NEXT_STRIDE) + offset
                gate = ld_i64(args + 8 * B_NEXT_GATES) + t * ld_i64(args + 8 * B_NEXT_GATES_STRIDE) + offset
                add_position(own + size, stride, gate, bias + (block + place) * stride, value, vectors)
            whole_key(own, last, stride, ld_i64(args + 8 * B_Y) + t * stride + offset, vectors)


# --- lowering -----------------------------------------------------------------------------------------------


def _pool(calls: Calls, node: Pool) -> None:
    y, shape = node.y, node.shape
    series: list[Argument] = []
    for values, gates in zip(node.values, node.gates, strict=True):
        series += [values, values.stride, gates, gates.stride]
    bias = calls.constants.vector(node.bias.reshape(-1, shape.dim), y.stride // 4)
    arguments: list[Argument] = [
        *series, *([0] * (8 - len(series))), y, y.stride, bias, shape.block,
        calls.cache.state_address(node.part), 4 * shape.floats,
    ]  # fmt: skip
    calls.scratch = max(calls.scratch, 3 * y.stride)
    tiles = -(-y.stride // (64 * POOLED))
    calls.add("pool", arguments, list(node.reads), [y, ("state", node.part)], tiles=(tiles, ANY, tiles, ANY))


LOWER: Table = {Pool: _pool}
