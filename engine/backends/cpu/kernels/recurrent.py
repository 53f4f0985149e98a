"""Causal convolutions and linear attention, which advance the states of sequences row by row.

A tile has some columns of one layer and goes through the rows of every run of the step in order, so that the
part of the state that it advances stays in the first-level cache. A chunked form would save few of a prompt's
operations on a processor, and rows would get other bits in other chunks. Layout of a state: of a convolution
(K - 1, stride of a row); of linear attention (H, blocks of `COLUMNS` values, Dk, `COLUMNS`), with Dk rounded
up to a multiple of `UNROLLED`. Formulas: see `Ops.convolve` and `Ops.linear_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    WIDE,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    prefetch,
    splat,
    store,
)
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
from engine.backends.graph.recurrent import Convolution, LinearAttention

(C_X, C_Y, C_STRIDE, C_WEIGHT, C_BIAS, C_TAPS, C_STATE, C_STATE_BYTES) = range(8)
"""x, y and their stride; weight and bias, rows of the same stride; taps; the first state and each's bytes."""
CONVOLVED = 16
"""Vectors of a tile of a convolution."""

(L_Q, L_Q_STRIDE, L_K, L_K_STRIDE, L_V, L_V_STRIDE, L_Y, L_DECAY, L_DECAY_STRIDE, L_BETA, L_RATE, L_SHIFT,
 L_HEADS, L_GROUPS, L_TILED, L_DELTA, L_KEY_DIM, L_VALUE_DIM, L_STATE, L_STATE_BYTES,
 L_SKIP, L_BETA_STRIDE, L_RATE_STRIDE, L_BOUND) = range(24)  # fmt: skip
"""Inputs and strides: y has v's stride, `beta` may be 0. Then vectors and the shape; the stride of a rate's
rows, where it is a matrix; the address of the bound of decays.
"""
VECTORS = 2
COLUMNS = 16 * VECTORS
UNROLLED = 4
CHAINS = UNROLLED if WIDE else 2
"""Sums of each vector, which hide the latency of additions: as many as there are registers for."""
ZERO = np.float32(0)


def _emit_convolve(
    b: ir.IRBuilder, y: Any, bias: Any, weight: Any, weight_stride: Any, old: Any, old_stride: Any,
    old_taps: Any, x: Any, x_stride: Any, taps: Any, vectors: Any,
) -> None:  # fmt: skip
    """One row: y = bias + the taps' sum, of the first `old_taps` over `old`, of the others over `x`."""
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        total = cgutils.alloca_once(b, VF32)
        b.store(load(b, b.add(bias, offset), VF32), total)
        for rows, stride, first, count in (
            (old, old_stride, ir.Constant(I64, 0), old_taps),
            (x, x_stride, old_taps, b.sub(taps, old_taps)),
        ):
            with counted_loop(b, count) as n:
                j = b.add(n, first)
                w = load(b, b.add(b.add(weight, offset), b.mul(j, weight_stride)), VF32)
                row = load(b, b.add(b.add(rows, offset), b.mul(j, stride)), VF32)
                b.store(fma(b, w, row, b.load(total)), total)
        store(b, b.load(total), b.add(y, offset))


convolve_row = intrinsic_function("convolve_row", types.void, (types.int64,) * 11, _emit_convolve)


def _emit_copy(b: ir.IRBuilder, source: Any, target: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        store(b, load(b, b.add(source, offset), VF32), b.add(target, offset))


def _emit_clear(b: ir.IRBuilder, target: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        store(b, const_vector(0.0), b.add(target, b.mul(i, ir.Constant(I64, 64))))


copy_state = intrinsic_function("copy_state", types.void, (types.int64,) * 3, _emit_copy)
clear_state = intrinsic_function("clear_state", types.void, (types.int64,) * 2, _emit_clear)


def convolve(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `CONVOLVED` vectors of a row."""
    stride, taps = ld_i64(args + 8 * C_STRIDE), ld_i64(args + 8 * C_TAPS)
    offset = 64 * CONVOLVED * tile
    vectors = min(CONVOLVED, (stride - offset) // 64)
    weight, bias = ld_i64(args + 8 * C_WEIGHT) + offset, ld_i64(args + 8 * C_BIAS) + offset
    states, state_bytes = ld_i64(args + 8 * C_STATE) + offset, ld_i64(args + 8 * C_STATE_BYTES)
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        first, rows = ld_i64(run + 8 * RUN_FIRST) * stride + offset, ld_i64(run + 8 * RUN_ROWS)
        x, y = ld_i64(args + 8 * C_X) + first, ld_i64(args + 8 * C_Y) + first
        before, after = ld_i64(run + 8 * RUN_FROM), states + state_bytes * ld_i64(run + 8 * RUN_TO)
        if before < 0:
            for j in range(taps - 1):
                clear_state(after + j * stride, vectors)
            old = after
        else:
            old = states + state_bytes * before
        for t in range(rows):
            convolve_row(
                y + t * stride, bias, weight, stride, old + t * stride, stride, max(0, taps - 1 - t),
                x + (t - taps + 1) * stride, stride, taps, vectors,
            )  # fmt: skip
        for j in range(taps - 1):
            t = rows - taps + 1 + j
            copy_state(x + t * stride if t >= 0 else old + (j + rows) * stride, after + j * stride, vectors)


Decayed = Callable[[Any, Any, int], Any]
"""From numbers of a state, their key's index and the number of their vector: what is left of them."""


def emit_said(b: ir.IRBuilder, state: Any, key: Any, count: Any, decayed: Decayed) -> list[Any]:
    """What a state (count, COLUMNS) says of a key: `VECTORS` vectors. `count` is a multiple of `UNROLLED`."""
    said = _cleared(b)
    with counted_loop(b, b.udiv(count, ir.Constant(I64, UNROLLED))) as n:
        for u, i, number, row in _places(b, n):
            k = splat(b, load(b, b.add(key, number), F32))
            for v in range(VECTORS):
                place = said[VECTORS * (u % CHAINS) + v]
                s = decayed(load(b, b.add(state, row), VF32, 64 * v), i, v)
                b.store(fma(b, k, s, b.load(place)), place)
    return _totals(b, said, [const_vector(0.0)] * VECTORS)


def emit_update(
    b: ir.IRBuilder, state: Any, key: Any, query: Any, count: Any, change: Sequence[Any], decayed: Decayed,
    y: Any, skipped: Sequence[Any],
) -> None:  # fmt: skip
    """A state decays and gets the product of the key and `change`; y is its product with the query, plus
    `skipped`. Prefetches the state that follows this one, the next tile's.
    """
    sums, following = _cleared(b), b.add(state, b.mul(count, ir.Constant(I64, 64 * VECTORS)))
    with counted_loop(b, b.udiv(count, ir.Constant(I64, UNROLLED))) as n:
        for u, i, number, row in _places(b, n):
            k = splat(b, load(b, b.add(key, number), F32))
            q = splat(b, load(b, b.add(query, number), F32))
            for v in range(VECTORS):
                prefetch(b, b.add(following, row), 64 * v)
                place = sums[VECTORS * (u % CHAINS) + v]
                s = fma(b, k, change[v], decayed(load(b, b.add(state, row), VF32, 64 * v), i, v))
                store(b, s, b.add(state, row), 64 * v)
                b.store(fma(b, q, s, b.load(place)), place)
    for v, total in enumerate(_totals(b, sums, skipped)):
        store(b, total, y, 64 * v)


def _cleared(b: ir.IRBuilder) -> list[Any]:
    sums = [cgutils.alloca_once(b, VF32) for _ in range(VECTORS * CHAINS)]
    for each in sums:
        b.store(const_vector(0.0), each)
    return sums


def _places(b: ir.IRBuilder, n: Any) -> Iterator[tuple[int, Any, Any, Any]]:
    """Of the keys in one round of a loop: their number in it, their index, and the places of their numbers
    and of their rows of a state.
    """
    for u in range(UNROLLED):
        i = b.add(b.mul(n, ir.Constant(I64, UNROLLED)), ir.Constant(I64, u))
        yield u, i, b.mul(i, ir.Constant(I64, 4)), b.mul(i, ir.Constant(I64, 64 * VECTORS))


def _totals(b: ir.IRBuilder, sums: Sequence[Any], firsts: Sequence[Any]) -> list[Any]:
    totals = []
    for v, total in enumerate(firsts):
        for u in range(CHAINS):
            total = b.fadd(total, b.load(sums[VECTORS * u + v]))
        totals.append(total)
    return totals


def _emit_advance(
    b: ir.IRBuilder, state: Any, key: Any, query: Any, count: Any, decay: Any, beta: Any, delta: Any,
    value: Any, skip: Any, y: Any,
) -> None:  # fmt: skip
    """One row of `COLUMNS` columns of a head: `state` (count, COLUMNS) advances, y is its product with the
    query, plus `skip` times the value. `count` is a multiple of `UNROLLED`.
    """
    a = splat(b, decay)
    looked_up = b.select(b.icmp_signed("!=", delta, ir.Constant(I64, 0)), count, ir.Constant(I64, 0))
    said = emit_said(b, state, key, looked_up, lambda s, i, v: s)
    given = [load(b, value, VF32, 64 * v) for v in range(VECTORS)]
    change = [
        b.fmul(splat(b, beta), b.fsub(each, b.fmul(a, total)))
        for each, total in zip(given, said, strict=True)
    ]
    skipped = [b.fmul(splat(b, skip), each) for each in given]
    emit_update(b, state, key, query, count, change, lambda s, i, v: b.fmul(a, s), y, skipped)


advance_row = intrinsic_function(
    "advance_row",
    types.void,
    (*(types.int64,) * 4, types.float32, types.float32, types.int64, types.int64, types.float32, types.int64),
    _emit_advance,
)


def linear_attention(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `COLUMNS` values of a head. Heads of other sizes go through scratch memory: padded keys,
    queries, values and results.
    """
    dk, dv = ld_i64(args + 8 * L_KEY_DIM), ld_i64(args + 8 * L_VALUE_DIM)
    heads, groups = ld_i64(args + 8 * L_HEADS), ld_i64(args + 8 * L_GROUPS)
    blocks, padded = (dv + COLUMNS - 1) // COLUMNS, (dk + UNROLLED - 1) // UNROLLED * UNROLLED
    head, block = tile // blocks, tile % blocks
    group = head % groups if ld_i64(args + 8 * L_TILED) else head // (heads // groups)
    columns, here = min(COLUMNS, dv - COLUMNS * block), 4 * (head * dv + COLUMNS * block)
    key_work, query_work = scratch, scratch + 4 * padded
    value_work, y_work = scratch + 8 * padded, scratch + 8 * padded + 4 * COLUMNS
    if padded != dk or columns != COLUMNS:
        for i in range(2 * padded + 2 * COLUMNS):
            st_f32(scratch + 4 * i, ZERO)
    q_stride, k_stride = ld_i64(args + 8 * L_Q_STRIDE), ld_i64(args + 8 * L_K_STRIDE)
    v_stride, beta_stride = ld_i64(args + 8 * L_V_STRIDE), ld_i64(args + 8 * L_BETA_STRIDE)
    beta, delta = ld_i64(args + 8 * L_BETA), ld_i64(args + 8 * L_DELTA)
    rate = ld_f32(ld_i64(args + 8 * L_RATE) + 4 * head)
    shift = ld_f32(ld_i64(args + 8 * L_SHIFT) + 4 * head)
    skip = ld_f32(ld_i64(args + 8 * L_SKIP) + 4 * head)
    part, state_bytes = tile * 4 * COLUMNS * padded, ld_i64(args + 8 * L_STATE_BYTES)
    states = ld_i64(args + 8 * L_STATE) + part
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        before, state = ld_i64(run + 8 * RUN_FROM), states + state_bytes * ld_i64(run + 8 * RUN_TO)
        if before < 0:
            clear_state(state, VECTORS * padded)
        elif states + state_bytes * before != state:
            copy_state(states + state_bytes * before, state, VECTORS * padded)
        first = ld_i64(run + 8 * RUN_FIRST)
        for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
            key = ld_i64(args + 8 * L_K) + t * k_stride + 4 * group * dk
            query = ld_i64(args + 8 * L_Q) + t * q_stride + 4 * group * dk
            value = ld_i64(args + 8 * L_V) + t * v_stride + here
            y = ld_i64(args + 8 * L_Y) + t * v_stride + here
            decay_row = ld_i64(args + 8 * L_DECAY) + t * ld_i64(args + 8 * L_DECAY_STRIDE)
            x = float(ld_f32(decay_row + 4 * head) + shift)
            soft = x if x > 20.0 else math.log1p(math.exp(x))
            decay, strength = np.float32(math.exp(rate * soft)), np.float32(soft)
            if beta:
                strength = np.float32(
                    1.0 / (1.0 + math.exp(-float(ld_f32(beta + t * beta_stride + 4 * head))))
                )
            if padded != dk:
                for i in range(dk):
                    st_f32(key_work + 4 * i, ld_f32(key + 4 * i))
                    st_f32(query_work + 4 * i, ld_f32(query + 4 * i))
                key, query = key_work, query_work
            if columns == COLUMNS:
                advance_row(state, key, query, padded, decay, strength, delta, value, skip, y)
            else:
                for i in range(columns):
                    st_f32(value_work + 4 * i, ld_f32(value + 4 * i))
                advance_row(state, key, query, padded, decay, strength, delta, value_work, skip, y_work)
                for i in range(columns):
                    st_f32(y + 4 * i, ld_f32(y_work + 4 * i))


# --- lowering -----------------------------------------------------------------------------------------------

ANY = 1 << 40
"""Rows of a tile that goes through all rows."""


def _convolution(calls: Calls, node: Convolution) -> None:
    x, y, shape = node.x, node.y, node.shape
    wide = y.stride // 4
    bias = calls.constants.zeros(wide) if node.bias is None else calls.constants.vector(node.bias)
    arguments: list[Argument] = [
        x, y, y.stride, calls.constants.vector(node.weight, wide), bias, shape.taps,
        calls.cache.state_address(node.part), 4 * shape.floats,
    ]  # fmt: skip
    tiles = -(-y.stride // (64 * CONVOLVED))
    state = ("state", node.part)
    calls.add("convolve", arguments, [x], [y, state], tiles=(tiles, ANY, tiles, ANY))


def _linear_attention(calls: Calls, node: LinearAttention) -> None:
    q, k, v, decay, shape = node.q, node.k, node.v, node.decay, node.shape
    constants, padded = calls.constants, shape.key_dim + UNROLLED
    # The largest of the three kernels: keys and queries, and of values a matrix of rates.
    calls.scratch = max(calls.scratch, 4 * ((2 + COLUMNS) * padded + 4 * COLUMNS))
    by_value = shape.decays == "value"
    columns = -(-shape.skips // COLUMNS) * COLUMNS
    arguments: list[Argument] = [
        q, q.stride, k, k.stride, v, v.stride, node.y, decay, decay.stride, node.beta or 0,
        constants.vector(node.rate, columns if by_value else 0), constants.vector(node.shift),
        shape.value_heads, shape.key_heads, int(shape.tiled), int(shape.delta), shape.key_dim,
        shape.value_dim, calls.cache.state_address(node.part), 4 * shape.floats,
        constants.zeros(shape.skips) if node.skip is None else constants.vector(node.skip),
        0 if node.beta is None else node.beta.stride, 4 * columns,
        constants.vector(np.array([1.0 if shape.unit else shape.bound], np.float32)),
    ]  # fmt: skip
    tiles = shape.value_heads * -(-shape.value_dim // COLUMNS)
    written: list[object] = [node.y, ("state", node.part)]
    name = "linear_attention" if shape.decays == "head" else f"selective_{shape.decays}"
    calls.add(name, arguments, list(node.reads), written, tiles=(tiles, ANY, tiles, ANY))


LOWER: Table = {Convolution: _convolution, LinearAttention: _linear_attention}
