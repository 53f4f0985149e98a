"""Linear attention whose keys, or whose every number, decay alone: Kimi delta attention and Mamba.

Tiles, states and arguments are those of `engine.backends.cpu.kernels.recurrent`. Formulas: see
`Ops.linear_attention`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    const_vector,
    exp_vector,
    intrinsic_function,
    load,
    splat,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.recurrent import (
    COLUMNS,
    L_BETA,
    L_BETA_STRIDE,
    L_BOUND,
    L_DECAY,
    L_DECAY_STRIDE,
    L_GROUPS,
    L_HEADS,
    L_K,
    L_K_STRIDE,
    L_KEY_DIM,
    L_Q,
    L_Q_STRIDE,
    L_RATE,
    L_RATE_STRIDE,
    L_SHIFT,
    L_SKIP,
    L_STATE,
    L_STATE_BYTES,
    L_TILED,
    L_V,
    L_V_STRIDE,
    L_VALUE_DIM,
    L_Y,
    UNROLLED,
    VECTORS,
    ZERO,
    clear_state,
    copy_state,
    emit_said,
    emit_update,
)
from engine.backends.cpu.runtime.step_block import (
    RUN_FIRST,
    RUN_FROM,
    RUN_ROWS,
    RUN_TABLE,
    RUN_TO,
    RUN_WORDS,
    RUNS,
)

started: Any = None
softened: Any = None
bounded: Any = None
unit: Any = None
copied: Any = None


def started_state(run: int, states: int, state_bytes: int, size: int) -> Any:
    """The state (vectors of `size`) after a run's rows, which gets what there was before them."""
    before, state = ld_i64(run + 8 * RUN_FROM), states + state_bytes * ld_i64(run + 8 * RUN_TO)
    if before < 0:
        clear_state(state, size)
    elif states + state_bytes * before != state:
        copy_state(states + state_bytes * before, state, size)
    return state


def _softened(x: int, shift: int, target: int, count: int) -> None:
    """softplus(x + shift) of `count` numbers."""
    for i in range(count):
        total = float(ld_f32(x + 4 * i) + ld_f32(shift + 4 * i))
        st_f32(target + 4 * i, total if total > 20.0 else math.log1p(math.exp(total)))


def _bounded(x: int, shift: int, target: int, count: int, rate: float, bound: float) -> None:
    """exp(-bound * sigmoid(-rate * (x + shift))) of `count` numbers."""
    for i in range(count):
        total = float(ld_f32(x + 4 * i) + ld_f32(shift + 4 * i))
        st_f32(target + 4 * i, math.exp(-bound / (1.0 + math.exp(rate * total))))


def _unit(x: int, shift: int, rate: int, target: int, value: int, count: int, begins: int) -> None:
    """step = sigmoid(x + shift) of `count` numbers, and in place of each value v its
    v sqrt(1 - exp(2 rate step)) / step; v / step where the text `begins`.
    """
    for i in range(count):
        step = 1.0 / (1.0 + math.exp(-float(ld_f32(x + 4 * i) + ld_f32(shift + 4 * i))))
        share = 1.0 if begins else math.sqrt(-math.expm1(2.0 * float(ld_f32(rate + 4 * i)) * step))
        st_f32(target + 4 * i, step)
        st_f32(value + 4 * i, float(ld_f32(value + 4 * i)) * share / step if step > 1e-30 else 0.0)


def copied_numbers(source: int, target: int, count: int) -> None:
    """Copy `count` numbers."""
    for i in range(count):
        st_f32(target + 4 * i, ld_f32(source + 4 * i))


def selective_kernel(name: str, jit: Jit) -> Any:
    """The kernel `selective_key` or `selective_value`; `jit(function, signature)` compiles its parts."""
    return specialise(
        selective_key if name == "selective_key" else selective_value,
        name,
        started=jit(started_state, types.int64(*[types.int64] * 4)),
        softened=jit(_softened, words(4)),
        bounded=jit(_bounded, types.void(*[types.int64] * 4, types.float64, types.float64)),
        unit=jit(_unit, words(7)),
        copied=jit(copied_numbers, words(3)),
    )


def _emit_by_key(
    b: ir.IRBuilder, state: Any, key: Any, query: Any, count: Any, decays: Any, beta: Any, value: Any, y: Any
) -> None:
    """One row of `COLUMNS` columns of a head: the delta rule after each key's row of `state` decayed."""

    def decayed(s: Any, i: Any, v: int) -> Any:
        return b.fmul(splat(b, load(b, b.add(decays, b.mul(i, ir.Constant(I64, 4))), F32)), s)

    said = emit_said(b, state, key, count, decayed)
    given = [load(b, value, VF32, 64 * v) for v in range(VECTORS)]
    change = [b.fmul(splat(b, beta), b.fsub(each, total)) for each, total in zip(given, said, strict=True)]
    nothing = [const_vector(0.0)] * VECTORS
    emit_update(b, state, key, query, count, change, decayed, y, nothing)


advance_by_key = intrinsic_function(
    "advance_by_key", types.void, (*(types.int64,) * 5, types.float32, types.int64, types.int64), _emit_by_key
)


def _emit_by_value(
    b: ir.IRBuilder, state: Any, key: Any, query: Any, count: Any, rate: Any, rate_stride: Any, steps: Any,
    value: Any, skip: Any, y: Any,
) -> None:  # fmt: skip
    """One row of `COLUMNS` columns, each with a step and, for each key, a rate of its own."""
    step = [load(b, steps, VF32, 64 * v) for v in range(VECTORS)]

    def decayed(s: Any, i: Any, v: int) -> Any:
        own = load(b, b.add(rate, b.mul(i, rate_stride)), VF32, 64 * v)
        return b.fmul(exp_vector(b, b.fmul(own, step[v])), s)

    given = [load(b, value, VF32, 64 * v) for v in range(VECTORS)]
    change = [b.fmul(each, strength) for each, strength in zip(given, step, strict=True)]
    skipped = [b.fmul(load(b, skip, VF32, 64 * v), each) for v, each in enumerate(given)]
    emit_update(b, state, key, query, count, change, decayed, y, skipped)


advance_by_value = intrinsic_function("advance_by_value", types.void, (types.int64,) * 10, _emit_by_value)


def selective_key(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `COLUMNS` values of a head."""
    dk, dv = ld_i64(args + 8 * L_KEY_DIM), ld_i64(args + 8 * L_VALUE_DIM)
    heads, groups = ld_i64(args + 8 * L_HEADS), ld_i64(args + 8 * L_GROUPS)
    blocks, padded = (dv + COLUMNS - 1) // COLUMNS, (dk + UNROLLED - 1) // UNROLLED * UNROLLED
    head, block = tile // blocks, tile % blocks
    group = head % groups if ld_i64(args + 8 * L_TILED) else head // (heads // groups)
    columns, here = min(COLUMNS, dv - COLUMNS * block), 4 * (head * dv + COLUMNS * block)
    key_work, query_work, decays = scratch, scratch + 4 * padded, scratch + 8 * padded
    value_work, y_work = scratch + 12 * padded, scratch + 12 * padded + 4 * COLUMNS
    for i in range(3 * padded + 2 * COLUMNS):
        st_f32(scratch + 4 * i, ZERO)
    rate = float(ld_f32(ld_i64(args + 8 * L_RATE) + 4 * head))
    bound = float(ld_f32(ld_i64(args + 8 * L_BOUND)))
    shift = ld_i64(args + 8 * L_SHIFT) + 4 * head * dk
    states = ld_i64(args + 8 * L_STATE) + tile * 4 * COLUMNS * padded
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        state = started(run, states, ld_i64(args + 8 * L_STATE_BYTES), VECTORS * padded)
        first = ld_i64(run + 8 * RUN_FIRST)
        for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
            key = ld_i64(args + 8 * L_K) + t * ld_i64(args + 8 * L_K_STRIDE) + 4 * group * dk
            query = ld_i64(args + 8 * L_Q) + t * ld_i64(args + 8 * L_Q_STRIDE) + 4 * group * dk
            value = ld_i64(args + 8 * L_V) + t * ld_i64(args + 8 * L_V_STRIDE) + here
            y = ld_i64(args + 8 * L_Y) + t * ld_i64(args + 8 * L_V_STRIDE) + here
            decay = ld_i64(args + 8 * L_DECAY) + t * ld_i64(args + 8 * L_DECAY_STRIDE) + 4 * head * dk
            if bound > 0.0:
                bounded(decay, shift, decays, dk, rate, bound)
            else:
                softened(decay, shift, decays, dk)
                for i in range(dk):
                    st_f32(decays + 4 * i, math.exp(rate * float(ld_f32(decays + 4 * i))))
            beta = ld_f32(ld_i64(args + 8 * L_BETA) + t * ld_i64(args + 8 * L_BETA_STRIDE) + 4 * head)
            strength = np.float32(1.0 / (1.0 + math.exp(-float(beta))))
            if padded != dk:
                copied(key, key_work, dk)
                copied(query, query_work, dk)
                key, query = key_work, query_work
            if columns == COLUMNS:
                advance_by_key(state, key, query, padded, decays, strength, value, y)
            else:
                copied(value, value_work, columns)
                advance_by_key(state, key, query, padded, decays, strength, value_work, y_work)
                copied(y_work, y, columns)


def selective_value(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile is `COLUMNS` values of a head."""
    dk, dv = ld_i64(args + 8 * L_KEY_DIM), ld_i64(args + 8 * L_VALUE_DIM)
    heads, groups = ld_i64(args + 8 * L_HEADS), ld_i64(args + 8 * L_GROUPS)
    blocks, padded = (dv + COLUMNS - 1) // COLUMNS, (dk + UNROLLED - 1) // UNROLLED * UNROLLED
    head, block = tile // blocks, tile % blocks
    group = head % groups if ld_i64(args + 8 * L_TILED) else head // (heads // groups)
    columns, here = min(COLUMNS, dv - COLUMNS * block), 4 * (head * dv + COLUMNS * block)
    key, query, steps = scratch, scratch + 4 * padded, scratch + 8 * padded
    value, y, skip = steps + 4 * COLUMNS, steps + 8 * COLUMNS, steps + 12 * COLUMNS
    rates, rate_stride = steps + 16 * COLUMNS, ld_i64(args + 8 * L_RATE_STRIDE)
    for i in range((2 + COLUMNS) * padded + 4 * COLUMNS):
        st_f32(scratch + 4 * i, ZERO)
    for i in range(dk):
        copied(ld_i64(args + 8 * L_RATE) + i * rate_stride + here, rates + 4 * COLUMNS * i, columns)
    copied(ld_i64(args + 8 * L_SKIP) + here, skip, columns)
    states = ld_i64(args + 8 * L_STATE) + tile * 4 * COLUMNS * padded
    is_unit = float(ld_f32(ld_i64(args + 8 * L_BOUND))) > 0.0
    for r in range(ld_i64(step + 8 * RUNS)):
        run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
        state = started(run, states, ld_i64(args + 8 * L_STATE_BYTES), VECTORS * padded)
        first = ld_i64(run + 8 * RUN_FIRST)
        begins = first if ld_i64(run + 8 * RUN_FROM) < 0 else -1
        for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
            copied(ld_i64(args + 8 * L_K) + t * ld_i64(args + 8 * L_K_STRIDE) + 4 * group * dk, key, dk)
            copied(ld_i64(args + 8 * L_Q) + t * ld_i64(args + 8 * L_Q_STRIDE) + 4 * group * dk, query, dk)
            row = t * ld_i64(args + 8 * L_V_STRIDE) + here
            copied(ld_i64(args + 8 * L_V) + row, value, columns)
            decay = ld_i64(args + 8 * L_DECAY) + t * ld_i64(args + 8 * L_DECAY_STRIDE) + here
            shift = ld_i64(args + 8 * L_SHIFT) + here
            if is_unit:
                unit(decay, shift, rates, steps, value, columns, int(t == begins))
            else:
                softened(decay, shift, steps, columns)
            advance_by_value(state, key, query, padded, rates, 4 * COLUMNS, steps, value, skip, y)
            copied(y, ld_i64(args + 8 * L_Y) + row, columns)
