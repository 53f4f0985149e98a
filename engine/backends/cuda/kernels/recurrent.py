"""Linear attention, which advances the states of sequences row by row; convolutions are in `convolution`.

It is a scan over rows. A block has 32 columns of one head's matrix, which stay in registers:
GROUPS threads share a column, each with some of the keys. So rows have the same bits in every cut of a text
into passes, which the chunked forms of the papers would not give them. A warp's loop over rows has 184
instructions a row with the delta rule and 144 without, for keys of 128 dimensions (SASS of sm_90).

Layout of a state: (H, blocks of 32 values, Dk, 32), with Dk rounded up to a multiple of 4. Formula: see
`Ops.linear_attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    block_z,
    blocks_x,
    blocks_y,
    fma,
    ld_f32,
    ldg_f32,
    ldg_i32,
    lds_f32,
    lds_f32x2,
    registers,
    shared,
    st_f32,
    sts_f32,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels import convolution
from engine.backends.cuda.kernels.common import run_of, state_after, state_before
from engine.backends.cuda.kernels.pointwise import softplus
from engine.backends.cuda.kernels.recurrent_parts import (
    AT_ONCE,
    COLUMNS,
    advance,
    load_state,
    over_groups,
    power,
    said_of,
    stage,
    store_state,
)
from engine.backends.cuda.kernels.selective import (
    load_rates,
    near_sigmoid,
    rows_by_key,
    rows_by_value,
    stage_decays,
    stage_steps,
    stage_strength,
)
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import LinearAttention
from engine.backends.states import MOST_KEY_DIM, LinearAttentionShape

USUAL_KEYS = 32
"""Keys of a lane, but for keys of more than 256 dimensions; half of them where values decay alone."""
STAGED = 36 << 10
"""Bytes of shared memory for the rows that a block has at hand."""

GROUPS = 4
KEYS = 32
WIDTH = 128
EXACT = True
DELTA = True
TOKENS = 16
STAGES = 2
DECAYS, MORE = 0, 2
"""What decays alone: heads, keys, or values (`LinearAttentionShape.decays`); the numbers of a row in shared
memory besides keys, queries and values.
"""
_DECAYS = ("head", "key", "value")


def _stage_factors(memory: int, decay: int, beta: int, rate: float, shift: float, row: int) -> None:
    """What multiplies the matrix, and what its change: of a row, from the addresses of its numbers."""
    step = softplus(ld_f32(decay) + shift)
    strength = step
    if beta != 0:
        strength = near_sigmoid(ld_f32(beta))
    place = int32(memory + 4 * TOKENS * (2 * WIDTH + COLUMNS) + 8 * row)
    sts_f32(place, power(rate * step))
    sts_f32(int32(place + 4), strength)


def _rows(
    s: Any, memory: int, y: int, stride: int, begin: int, count: int, group: int, column: int, columns: int,
    skip: float,
) -> None:  # fmt: skip
    """Advance s by the staged rows, which begin at row `begin`. y: the address of column 0 of the block."""
    t = int32(0)
    while t < count:
        keys = int32(memory + 4 * WIDTH * t + 16 * group)
        given = lds_f32(int32(memory + 8 * TOKENS * WIDTH + 4 * (COLUMNS * t + column)))
        decay, strength = lds_f32x2(int32(memory + 4 * TOKENS * (2 * WIDTH + COLUMNS) + 8 * t))
        change = strength * given
        if DELTA:
            said = said_of(s, keys)
            change = strength * (given - decay * over_groups(said))
        out = advance(s, keys, decay, change)
        out = over_groups(out)
        if group == 0 and column < columns:
            st_f32(y + int64(begin + t) * stride + 4 * int64(column), fma(skip, given, out))
        t = unknown(int32(t + 1))  # not unrolled, which would take twice the registers


def _stage_rest(
    memory: int, decay: int, decay_stride: int, beta: int, beta_stride: int, shift: int, rate: int,
    bound: float, begin: int, count: int, head: int, key_dim: int, value: int, columns: int, me: int,
) -> None:  # fmt: skip
    """Decays and strengths of the staged rows, to shared memory."""
    if DECAYS == 2:
        here = 4 * int64(value)
        stage_steps(memory, decay + here, decay_stride, shift + here, begin, count, columns, me)
    if DECAYS == 1:
        here, own_rate = 4 * int64(int32(head * key_dim)), ldg_f32(rate + 4 * int64(head))
        stage_decays(
            memory, decay + here, decay_stride, shift + here, own_rate, bound, begin, count, key_dim, me
        )
    if DECAYS < 2 and me < count:
        own, row = 4 * int64(head), int64(begin + me)
        if DECAYS == 1:
            stage_strength(memory, beta + row * beta_stride + own, me)
        else:
            strength = beta + row * beta_stride + own if beta != 0 else beta
            own_rate, own_shift = ldg_f32(rate + own), ldg_f32(shift + own)
            _stage_factors(memory, decay + row * decay_stride + own, strength, own_rate, own_shift, me)


def _advance_rows(
    s: Any, rates: Any, memory: int, y: int, stride: int, begin: int, count: int, group: int, column: int,
    columns: int, skip: float, fresh: int,
) -> None:  # fmt: skip
    """Advance s by the staged rows, of which `fresh` is a text's first one, or none."""
    if DECAYS == 0:
        _rows(s, memory, y, stride, begin, count, group, column, columns, skip)
    if DECAYS == 1:
        rows_by_key(s, memory, y, stride, begin, count, group, column, columns)
    if DECAYS == 2:
        rows_by_value(s, rates, memory, y, stride, begin, count, group, column, columns, skip, fresh)


def _linear_attention(
    q: int, q_stride: int, k: int, k_stride: int, v: int, v_stride: int, y: int, decay: int,
    decay_stride: int, beta: int, rate: int, shift: int, skip: int, state: int, state_bytes: int,
    positions: int, states: int, runs: int, rows: int, key_heads: int, key_dim: int, value_dim: int,
    beta_stride: int, bound: float,
) -> None:  # fmt: skip
    """`Ops.linear_attention`. Grid (32 values of a head, head, 1), or with `runs` (32 values of a head, head,
    row), where the first row's block has its run.

    q, k (rows, G Dk), v, y (rows, H Dv), decay and beta (rows, H): float32, strides in bytes; beta and skip
    may be 0. rate, shift, skip float32 and key_heads int32: (H,). If keys decay alone, decay and shift have
    H Dk numbers; if values do, they and skip have H Dv, and rate is (Dk, H Dv).
    """
    me, head, row = int32(thread()), int32(block_y()), int32(block_z())
    lane, memory = int32(me & 31), int32(shared(4 * TOKENS * (2 * WIDTH + COLUMNS + MORE)))
    group = int32(lane >> (5 - STAGES))
    column = int32((me >> 5 << (5 - STAGES)) + (lane & (32 // GROUPS - 1)))
    key_head, value = int32(ldg_i32(key_heads + 4 * int64(head))), int32(COLUMNS * block_x())
    tile, padded = int32(head * blocks_x() + block_x()), int32(int32(key_dim + 3) >> 2 << 2)
    columns = int32(value_dim - value)
    value = int32(head * value_dim + value)
    own_skip = float32(0.0)
    rates = registers(float32(0.0), KEYS)
    if DECAYS == 2:
        stride = 4 * int64(blocks_y() * value_dim)
        load_rates(rates, rate + 4 * int64(value), stride, group, key_dim, column, columns)
    if skip != 0 and (DECAYS < 2 or column < columns):
        own_skip = ldg_f32(skip + 4 * int64(head if DECAYS < 2 else int32(value + column)))
    wait_for_others()
    first, stop = int32(0), rows
    if runs != 0:
        first, stop, _ = run_of(runs, row)
    if first == row:
        place = state + 4 * (int64(tile) * int64(padded * COLUMNS) + int64(column)) + 512 * int64(group)
        s = registers(float32(0.0), KEYS)
        old = state_before(states, positions, first)
        if old >= 0:
            source = place + int64(old) * state_bytes
            load_state(s, source, group, padded)
        for begin in range(first, stop, TOKENS):
            count = int32(stop - begin)
            if count > TOKENS:
                count = int32(TOKENS)
            barrier()
            stage(
                memory, q, q_stride, k, k_stride, v, v_stride, int32(begin), count, key_head, key_dim, value,
                columns, me,
            )  # fmt: skip
            _stage_rest(
                memory, decay, decay_stride, beta, beta_stride, shift, rate, bound, begin, count, head,
                key_dim, value, columns, me,
            )  # fmt: skip
            barrier()
            fresh, y_block = first if old < 0 else int32(-1), y + 4 * int64(value)
            _advance_rows(
                s, rates, memory, y_block, v_stride, begin, count, group, column, columns, own_skip, fresh
            )  # fmt: skip
        number = state_after(states, positions, first, int32(stop - first))
        target = place + int64(number) * state_bytes
        store_state(s, target, group, padded)


@cache
def linear_attention_kernel(
    key_dim: int, delta: bool, decays: str = "head", bound: bool = False, unit: bool = False
) -> Kernel:
    """The kernel for keys of this dimension, with the delta rule or without; the rest is that of
    `LinearAttentionShape`.
    """
    assert 0 < key_dim <= MOST_KEY_DIM
    assert decays == "head" or delta == (decays == "key")
    usual = USUAL_KEYS // 2 if decays == "value" else USUAL_KEYS  # whose rates take as many registers
    groups = 4 if key_dim <= 4 * usual else 8
    keys = -(-key_dim // (4 * groups)) * 4
    few = keys <= usual
    width = groups * keys
    exact = -(-key_dim // 4) * 4 == width
    more = {"head": 2, "key": width + 1, "value": COLUMNS}[decays]
    tokens = min(16, STAGED // (4 * (2 * width + more)) // AT_ONCE * AT_ONCE)
    constants = {
        "GROUPS": groups,
        "KEYS": keys,
        "WIDTH": width,
        "EXACT": int(exact),
        "DELTA": int(delta),
        "TOKENS": tokens,
        "STAGES": groups.bit_length() - 1,
        "AT_ONCE": AT_ONCE,
        "COLUMNS": COLUMNS,
        "DECAYS": _DECAYS.index(decays),
        "MORE": more,
        "BOUND": int(bound),
        "UNIT": int(unit),
    }
    rule = ("delta" if delta else "sum") if decays == "head" else decays
    name = f"linear_attention_{rule}_{width}{'' if exact else '_padded'}{'_bound' * bound}{'_unit' * unit}"
    return Kernel(
        name,
        _linear_attention,
        "l" * 18 + "iliilf",
        32 * groups,
        168 if few and (groups == 4 or decays == "head") else 255,
        constants,
        12 // groups,
    )


@cache
def _key_heads(shape: LinearAttentionShape) -> npt.NDArray[np.int32]:
    """int32 (H,): the head of keys and queries of each head of values."""
    heads = np.arange(shape.value_heads, dtype=np.int32)
    if shape.tiled:
        return heads % np.int32(shape.key_heads)
    return heads // np.int32(shape.value_heads // shape.key_heads)


def _linear_attentions(context: Context, node: LinearAttention) -> Calls:
    q, k, v, decay, shape, device = node.q, node.k, node.v, node.decay, node.shape, node.device
    arguments: tuple[Argument, ...] = (
        q, q.stride, k, k.stride, v, v.stride, node.y, decay, decay.stride,
        0 if node.beta is None else node.beta,
        context.vector(node.rate, device), context.vector(node.shift, device),
        context.vector(node.skip, device), context.cache.state_address(node.part), 4 * shape.floats,
        Runtime.POSITIONS, Runtime.STATES, Runtime.RUNS, Runtime.ROWS,
        context.constants.array(_key_heads(shape), device), shape.key_dim, shape.value_dim,
        0 if node.beta is None else node.beta.stride, shape.bound,
    )  # fmt: skip
    kernel = linear_attention_kernel(shape.key_dim, shape.delta, shape.decays, shape.bound > 0, shape.unit)
    written = node.y, ("state", node.part)
    heads, blocks = shape.value_heads, -(-shape.value_dim // COLUMNS)
    several = Call(kernel, lambda rows: (blocks, heads, rows), arguments, node.reads, written)
    return (Call(kernel, lambda _: (blocks, heads, 1), arguments, node.reads, written, several=several),)


LOWER: Table = {**convolution.LOWER, LinearAttention: _linear_attentions}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield from convolution.variants()
    yield linear_attention_kernel(128, True)
    yield linear_attention_kernel(128, False)
    yield linear_attention_kernel(256, False)
    yield linear_attention_kernel(128, True, "key")
    yield linear_attention_kernel(16, False, "value")
