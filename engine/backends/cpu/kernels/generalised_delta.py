"""The generalised delta rule of RWKV-7: keys decay alone, and what a state says of one vector is taken out of
it along another; and RWKV-6, where nothing is taken out.

Tiles and states are those of `engine.backends.cpu.kernels.recurrent`. Formulas: see `DeltaWeights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    const_vector,
    counted_loop,
    exp_vector,
    fma,
    intrinsic_function,
    load,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.pointwise import emit_sigmoid
from engine.backends.cpu.kernels.recurrent import (
    ANY,
    COLUMNS,
    UNROLLED,
    VECTORS,
    ZERO,
    emit_said,
    emit_update,
)
from engine.backends.cpu.kernels.selective import copied_numbers, started_state
from engine.backends.cpu.lowering.call import Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import RUN_FIRST, RUN_ROWS, RUN_TABLE, RUN_WORDS, RUNS
from engine.backends.graph.recurrent import GeneralisedDelta

(D_R, D_R_STRIDE, D_K, D_K_STRIDE, D_V, D_V_STRIDE, D_DECAY, D_DECAY_STRIDE, D_RATE, D_RATE_STRIDE, D_Y,
 D_Y_STRIDE, D_REMOVAL, D_MIXING, D_BONUS, D_HEADS, D_KEY_DIM, D_VALUE_DIM, D_STATE,
 D_STATE_BYTES, D_GROUPS) = range(21)  # fmt: skip
"""Inputs and the result with their strides; weights, rows of whole vectors; the shape; the first state and
each one's bytes; the heads of keys and values.
"""
LANES = 16
WORKS = 8
"""Vectors of keys in scratch memory, besides values, results and sums of vectors."""

MOST_DECAY = 5.0
"""exp(-exp(x)) is 0 for all greater x."""

started: Any = None
copied: Any = None
prepared: Any = None
advance: Any = None


def _emit_prepared(
    b: ir.IRBuilder, r: Any, k: Any, decay: Any, rate: Any, removal: Any, mixing: Any, bonus: Any,
    vectors: Any, removed: Any, added: Any, key: Any, kept: Any, sums: Any,
) -> None:  # fmt: skip
    """What a head's row makes of its numbers: k removal, a times that, u and w. `sums` gets one vector of
    sums over squares of the first, and one over r u bonus.
    """
    squares, weighed = cgutils.alloca_once(b, VF32), cgutils.alloca_once(b, VF32)
    one, factor = const_vector(1.0), const_vector(-math.exp(-0.5))
    b.store(const_vector(0.0), squares)
    b.store(const_vector(0.0), weighed)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))

        def at(address: Any, offset: Any = offset) -> Any:
            return load(b, b.add(address, offset), VF32)

        numbers, a = at(k), emit_sigmoid(b, at(rate))
        n = b.fmul(numbers, at(removal))
        u = b.fmul(numbers, fma(b, b.fsub(a, one), at(mixing), one))
        w = exp_vector(b, b.fmul(factor, emit_sigmoid(b, at(decay))))
        for value, address in ((n, removed), (b.fmul(a, n), added), (u, key), (w, kept)):
            store(b, value, b.add(address, offset))
        b.store(fma(b, n, n, b.load(squares)), squares)
        b.store(fma(b, b.fmul(at(r), u), at(bonus), b.load(weighed)), weighed)
    store(b, b.load(squares), sums)
    store(b, b.load(weighed), sums, 64)


def _emit_decayed(gated: bool) -> Callable[..., None]:
    """The same without the delta rule: u and w, and the sums of r u bonus."""

    def emit(
        b: ir.IRBuilder, r: Any, k: Any, decay: Any, rate: Any, removal: Any, mixing: Any, bonus: Any,
        vectors: Any, removed: Any, added: Any, key: Any, kept: Any, sums: Any,
    ) -> None:  # fmt: skip
        weighed = cgutils.alloca_once(b, VF32)
        b.store(const_vector(0.0), weighed)
        with counted_loop(b, vectors) as i:
            offset, most = b.mul(i, ir.Constant(I64, 64)), const_vector(MOST_DECAY)
            x = load(b, b.add(decay, offset), VF32)
            x = b.select(b.fcmp_ordered(">", x, most), most, x)
            w = exp_vector(b, b.fneg(exp_vector(b, x)))
            u = load(b, b.add(k, offset), VF32)
            u = b.fmul(u, b.fsub(const_vector(1.0), w)) if gated else u
            store(b, u, b.add(key, offset))
            store(b, w, b.add(kept, offset))
            by = b.fmul(load(b, b.add(r, offset), VF32), load(b, b.add(bonus, offset), VF32))
            b.store(fma(b, by, u, b.load(weighed)), weighed)
        store(b, b.load(weighed), sums, 64)

    return emit


def _emit_decaying(gated: bool) -> Callable[..., None]:
    """The same without the delta rule: results are of the state before the row, or after it if `gated`."""

    def emit(
        b: ir.IRBuilder, state: Any, removed: Any, added: Any, key: Any, kept: Any, query: Any, count: Any,
        inverse: Any, weight: Any, value: Any, y: Any, own: Any,
    ) -> None:  # fmt: skip
        before = None if gated else emit_said(b, state, query, count, lambda s, i, v: s)

        def left(s: Any, i: Any, v: int) -> Any:
            place = b.mul(i, ir.Constant(I64, 4))
            return b.fmul(splat(b, load(b, b.add(kept, place), F32)), s)

        given = [load(b, value, VF32, 64 * v) for v in range(VECTORS)]
        emit_update(b, state, key, query, count, given, left, y, [const_vector(0.0)] * VECTORS)
        for v, each in enumerate(given):
            if before is not None:
                store(b, before[v], y, 64 * v)
            store(b, b.fmul(splat(b, weight), each), own, 64 * v)

    return emit


def _emit_advance(
    b: ir.IRBuilder, state: Any, removed: Any, added: Any, key: Any, kept: Any, query: Any, count: Any,
    inverse: Any, weight: Any, value: Any, y: Any, own: Any,
) -> None:  # fmt: skip
    """One row of `COLUMNS` columns of a head. `inverse` is 1 / |k removal|^2, `weight` the bonus's."""
    said = emit_said(b, state, removed, count, lambda s, i, v: s)
    taken = [b.fneg(b.fmul(splat(b, inverse), each)) for each in said]

    def left(s: Any, i: Any, v: int) -> Any:
        place = b.mul(i, ir.Constant(I64, 4))
        along = splat(b, load(b, b.add(added, place), F32))
        return fma(b, along, taken[v], b.fmul(splat(b, load(b, b.add(kept, place), F32)), s))

    given = [load(b, value, VF32, 64 * v) for v in range(VECTORS)]
    emit_update(b, state, key, query, count, given, left, y, [const_vector(0.0)] * VECTORS)
    for v, each in enumerate(given):
        store(b, b.fmul(splat(b, weight), each), own, 64 * v)


_ADVANCE = (*(types.int64,) * 7, types.float32, types.float32, *(types.int64,) * 3)
RULES = {
    name: (
        intrinsic_function(f"prepared_{name}", types.void, (types.int64,) * 13, prepares),
        intrinsic_function(f"advance_{name}", types.void, _ADVANCE, advances),
    )
    for name, prepares, advances in (
        ("delta", _emit_prepared, _emit_advance),
        ("bonus", _emit_decayed(False), _emit_decaying(False)),
        ("gated", _emit_decayed(True), _emit_decaying(True)),
    )
}
"""What prepares and advances a row, by `DeltaWeights.rule`."""


def _generalised_delta(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `COLUMNS` values of a head. Heads of other sizes go through scratch memory."""
    dk, dv = ld_i64(args + 8 * D_KEY_DIM), ld_i64(args + 8 * D_VALUE_DIM)
    heads, blocks = ld_i64(args + 8 * D_HEADS), (dv + COLUMNS - 1) // COLUMNS
    head, block = tile // blocks, tile % blocks
    padded, vectors = (dk + UNROLLED - 1) // UNROLLED * UNROLLED, (dk + LANES - 1) // LANES
    size, whole = 64 * vectors, dk % LANES == 0
    group = head // (heads // ld_i64(args + 8 * D_GROUPS))
    columns, here = min(COLUMNS, dv - COLUMNS * block), 4 * (head * dv + COLUMNS * block)
    removed, added, key, kept = scratch, scratch + size, scratch + 2 * size, scratch + 3 * size
    r_work, k_work = scratch + 4 * size, scratch + 5 * size
    decay_work, rate_work = scratch + 6 * size, scratch + 7 * size
    value_work = scratch + WORKS * size
    y_work, own_work, sums = value_work + 4 * COLUMNS, value_work + 8 * COLUMNS, value_work + 12 * COLUMNS
    for i in range(WORKS * LANES * vectors + 3 * COLUMNS):
        st_f32(scratch + 4 * i, ZERO)
    removal = ld_i64(args + 8 * D_REMOVAL) + head * size
    mixing = ld_i64(args + 8 * D_MIXING) + head * size
    bonus = ld_i64(args + 8 * D_BONUS) + head * size
    states = ld_i64(args + 8 * D_STATE) + tile * 4 * COLUMNS * padded
    for n in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * n)
        state = started(run, states, ld_i64(args + 8 * D_STATE_BYTES), VECTORS * padded)
        first = ld_i64(run + 8 * RUN_FIRST)
        for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
            r = ld_i64(args + 8 * D_R) + t * ld_i64(args + 8 * D_R_STRIDE) + 4 * head * dk
            k = ld_i64(args + 8 * D_K) + t * ld_i64(args + 8 * D_K_STRIDE) + 4 * group * dk
            decay = ld_i64(args + 8 * D_DECAY) + t * ld_i64(args + 8 * D_DECAY_STRIDE) + 4 * head * dk
            rate = ld_i64(args + 8 * D_RATE) + t * ld_i64(args + 8 * D_RATE_STRIDE) + 4 * head * dk
            if not whole:
                copied(r, r_work, dk)
                copied(k, k_work, dk)
                copied(decay, decay_work, dk)
                copied(rate, rate_work, dk)
                r, k, decay, rate = r_work, k_work, decay_work, rate_work
            prepared(r, k, decay, rate, removal, mixing, bonus, vectors, removed, added, key, kept, sums)
            square, weight = 0.0, 0.0
            for i in range(LANES):
                square += float(ld_f32(sums + 4 * i))
                weight += float(ld_f32(sums + 64 + 4 * i))
            inverse = np.float32(1.0 / max(square, 1e-24))
            value = ld_i64(args + 8 * D_V) + t * ld_i64(args + 8 * D_V_STRIDE)
            value += here - 4 * (head - group) * dv
            y = ld_i64(args + 8 * D_Y) + t * ld_i64(args + 8 * D_Y_STRIDE) + here
            own = y + 4 * heads * dv
            if columns == COLUMNS:
                advance(
                    state, removed, added, key, kept, r, padded, inverse, np.float32(weight), value, y, own
                )
            else:
                copied(value, value_work, columns)
                advance(
                    state, removed, added, key, kept, r, padded, inverse, np.float32(weight), value_work,
                    y_work, own_work,
                )  # fmt: skip
                copied(y_work, y, columns)
                copied(own_work, own, columns)


def generalised_delta_kernel(rule: str, jit: Jit) -> Any:
    """The kernel of this rule; `jit(function, signature)` compiles its parts."""
    return specialise(
        _generalised_delta,
        f"generalised_{rule}",
        prepared=RULES[rule][0],
        advance=RULES[rule][1],
        started=jit(started_state, types.int64(*[types.int64] * 4)),
        copied=jit(copied_numbers, words(3)),
    )


# --- lowering -----------------------------------------------------------------------------------------------


def _lower(calls: Calls, node: GeneralisedDelta) -> None:
    weights, shape, constants = node.weights, node.weights.shape, calls.constants
    row = -(-shape.key_dim // LANES) * LANES
    calls.scratch = max(calls.scratch, 4 * (WORKS * row + 3 * COLUMNS + 2 * LANES))
    inputs = (node.r, node.k, node.v, node.decay, node.rate, node.y)
    arguments: list[Argument] = [
        *(each for buffer in inputs for each in (buffer, buffer.stride)),
        *(
            constants.zeros(shape.value_heads * row) if each is None else constants.vector(each, row)
            for each in (weights.removal, weights.mixing, weights.bonus)
        ),
        shape.value_heads, shape.key_dim, shape.value_dim, calls.cache.state_address(node.part),
        4 * shape.floats, shape.key_heads,
    ]  # fmt: skip
    tiles = shape.value_heads * -(-shape.value_dim // COLUMNS)
    written: list[object] = [node.y, ("state", node.part)]
    calls.add(
        f"generalised_{weights.rule}", arguments, list(node.reads), written, tiles=(tiles, ANY, tiles, ANY)
    )


LOWER: Table = {GeneralisedDelta: _lower}
