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
    absolute,
    barrier,
    block_x,
    block_y,
    block_z,
    blocks_x,
    fma,
    ld_f32,
    ldg_f32,
    ldg_i32,
    lds_f32,
    lds_f32x2,
    lds_f32x4,
    maximum,
    minimum,
    near_reciprocal,
    registers,
    shared,
    shfl_xor_f32,
    st_f32,
    static,
    sts_f32,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels import convolution
from engine.backends.cuda.kernels.common import run_of, state_after, state_before
from engine.backends.cuda.kernels.pointwise import exponential, softplus
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import LinearAttention
from engine.backends.states import MOST_KEY_DIM, LinearAttentionShape

AT_ONCE = 4
"""Rows whose numbers are loaded at once."""
COLUMNS = 32
"""Values of a block of linear attention."""
USUAL_KEYS = 32
"""Keys of a lane, but for keys of more than 256 dimensions."""
STAGED = 36 << 10
"""Bytes of shared memory for the rows that a block has at hand."""

GROUPS = 4
KEYS = 32
WIDTH = 128
EXACT = True
DELTA = True
TOKENS = 16
STAGES = 2


def _power(x: float) -> Any:
    """e^x, near 1 to the last bits: a decay is multiplied thousands of times."""
    near = maximum(minimum(x, float32(0.125)), float32(-0.125))
    series = fma(near, fma(near, float32(1.0 / 120.0), float32(1.0 / 24.0)), float32(1.0 / 6.0))
    series = fma(near, fma(near, fma(near, series, float32(0.5)), float32(1.0)), float32(1.0))
    return series if absolute(x) < float32(0.125) else exponential(x)


def _stage(
    memory: int, q: int, q_stride: int, k: int, k_stride: int, v: int, v_stride: int, begin: int, count: int,
    key_head: int, key_dim: int, value: int, columns: int, me: int,
) -> None:  # fmt: skip
    """Copy keys, queries and values of `count` rows from `begin` on to shared memory, zeros beyond them."""
    for start in static(range(0, WIDTH, 32 * GROUPS)):
        own = int32(me + start)
        if own < WIDTH:
            at = 4 * (int64(key_head) * int64(key_dim) + int64(own))
            key_at, query_at = k + int64(begin) * k_stride + at, q + int64(begin) * q_stride + at
            t = int32(0)
            while t < count:
                key = registers(float32(0.0), AT_ONCE)
                query = registers(float32(0.0), AT_ONCE)
                for i in static(range(AT_ONCE)):
                    if own < key_dim and int32(t + i) < count:
                        key[i], query[i] = ld_f32(key_at), ld_f32(query_at)
                    key_at, query_at = key_at + k_stride, query_at + q_stride
                for i in static(range(AT_ONCE)):
                    place = int32(memory + 4 * int32(WIDTH * int32(t + i) + own))
                    sts_f32(place, key[i])
                    sts_f32(int32(place + 4 * TOKENS * WIDTH), query[i])
                t = unknown(int32(t + AT_ONCE))
    column = int32(me & 31)
    value_at = v + 4 * (int64(value) + int64(column))
    t = int32(me >> 5)
    while t < count:
        number = float32(0.0)
        if column < columns:
            number = ld_f32(value_at + int64(begin + t) * v_stride)
        sts_f32(int32(memory + 8 * TOKENS * WIDTH + 4 * (COLUMNS * t + column)), number)
        t = unknown(int32(t + GROUPS))


def _stage_factors(memory: int, decay: int, beta: int, at: int, rate: float, shift: float, row: int) -> None:
    """What multiplies the matrix, and what its change: of a row, from the address of its decay."""
    step = softplus(ld_f32(decay) + shift)
    strength = step
    if beta != 0:
        strength = near_reciprocal(float32(1.0) + exponential(-ld_f32(beta + at)))
    place = int32(memory + 4 * TOKENS * (2 * WIDTH + COLUMNS) + 8 * row)
    sts_f32(place, _power(rate * step))
    sts_f32(int32(place + 4), strength)


def _over_groups(total: float) -> Any:
    """The sum over the lanes that share a column, the same in each."""
    for stage in static(range(STAGES)):
        total = total + shfl_xor_f32(total, int32(16 >> stage))
    return total


def _advance(s: Any, memory: int, decay: float, change: float) -> Any:
    """s = decay s + key change; returns the lane's part of s^T query. `memory`: the lane's keys."""
    part = registers(float32(0.0), 4)
    for i in static(range(KEYS // 4)):
        k0, k1, k2, k3 = lds_f32x4(int32(memory + 16 * GROUPS * i))
        q0, q1, q2, q3 = lds_f32x4(int32(memory + 4 * TOKENS * WIDTH + 16 * GROUPS * i))
        s[4 * i] = fma(k0, change, decay * s[4 * i])
        s[4 * i + 1] = fma(k1, change, decay * s[4 * i + 1])
        s[4 * i + 2] = fma(k2, change, decay * s[4 * i + 2])
        s[4 * i + 3] = fma(k3, change, decay * s[4 * i + 3])
        part[0] = fma(q0, s[4 * i], part[0])
        part[1] = fma(q1, s[4 * i + 1], part[1])
        part[2] = fma(q2, s[4 * i + 2], part[2])
        part[3] = fma(q3, s[4 * i + 3], part[3])
    return (part[0] + part[1]) + (part[2] + part[3])


def _said(s: Any, memory: int) -> Any:
    """The lane's part of s^T key."""
    part = registers(float32(0.0), 4)
    for i in static(range(KEYS // 4)):
        k0, k1, k2, k3 = lds_f32x4(int32(memory + 16 * GROUPS * i))
        part[0] = fma(k0, s[4 * i], part[0])
        part[1] = fma(k1, s[4 * i + 1], part[1])
        part[2] = fma(k2, s[4 * i + 2], part[2])
        part[3] = fma(k3, s[4 * i + 3], part[3])
    return (part[0] + part[1]) + (part[2] + part[3])


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
            said = _said(s, keys)
            change = strength * (given - decay * _over_groups(said))
        out = _advance(s, keys, decay, change)
        out = _over_groups(out)
        if group == 0 and column < columns:
            st_f32(y + int64(begin + t) * stride + 4 * int64(column), fma(skip, given, out))
        t = unknown(int32(t + 1))  # not unrolled, which would take twice the registers


def _load_state(s: Any, source: int, group: int, padded: int) -> None:
    """The lane's keys of its column, from a block's column and the group's first key on."""
    for i in static(range(KEYS)):
        if EXACT or int32(4 * GROUPS * (i // 4) + 4 * group) < padded:
            s[i] = ld_f32(source + 128 * (4 * GROUPS * (i // 4) + i % 4))


def _store_state(s: Any, target: int, group: int, padded: int) -> None:
    """The reverse of `_load_state`."""
    for i in static(range(KEYS)):
        if EXACT or int32(4 * GROUPS * (i // 4) + 4 * group) < padded:
            st_f32(target + 128 * (4 * GROUPS * (i // 4) + i % 4), s[i])


def _linear_attention(
    q: int, q_stride: int, k: int, k_stride: int, v: int, v_stride: int, y: int, decay: int,
    decay_stride: int, beta: int, rate: int, shift: int, skip: int, state: int, state_bytes: int,
    positions: int, states: int, runs: int, rows: int, key_heads: int, key_dim: int, value_dim: int,
) -> None:  # fmt: skip
    """`Ops.linear_attention`. Grid (32 values of a head, head, 1), or with `runs` (32 values of a head, head,
    row), where the first row's block has its run.

    q, k (rows, G Dk), v, y (rows, H Dv), decay and beta (rows, H): float32, strides in bytes; beta and skip
    may be 0. rate, shift, skip float32 and key_heads int32: (H,).
    """
    me, head, row = int32(thread()), int32(block_y()), int32(block_z())
    lane, memory = int32(me & 31), int32(shared(4 * TOKENS * (2 * WIDTH + COLUMNS + 2)))
    group = int32(lane >> (5 - STAGES))
    column = int32((me >> 5 << (5 - STAGES)) + (lane & (32 // GROUPS - 1)))
    key_head, value = int32(ldg_i32(key_heads + 4 * int64(head))), int32(COLUMNS * block_x())
    tile, padded = int32(head * blocks_x() + block_x()), int32(int32(key_dim + 3) >> 2 << 2)
    columns = int32(value_dim - value)
    value = int32(head * value_dim + value)
    head_rate, head_shift = ldg_f32(rate + 4 * int64(head)), ldg_f32(shift + 4 * int64(head))
    head_skip = float32(0.0)
    if skip != 0:
        head_skip = ldg_f32(skip + 4 * int64(head))
    wait_for_others()
    first, stop = int32(0), rows
    if runs != 0:
        first, stop, _ = run_of(runs, row)
    if first == row:
        here = state + 4 * (int64(tile) * int64(padded * COLUMNS) + int64(column)) + 512 * int64(group)
        s = registers(float32(0.0), KEYS)
        old = state_before(states, positions, first)
        if old >= 0:
            source = here + int64(old) * state_bytes
            _load_state(s, source, group, padded)
        for begin in range(first, stop, TOKENS):
            count = int32(stop - begin)
            if count > TOKENS:
                count = int32(TOKENS)
            barrier()
            _stage(
                memory, q, q_stride, k, k_stride, v, v_stride, int32(begin), count, key_head, key_dim, value,
                columns, me,
            )  # fmt: skip
            if me < count:
                at = int64(begin + me) * decay_stride + 4 * int64(head)
                _stage_factors(memory, decay + at, beta, at, head_rate, head_shift, me)
            barrier()
            y_block = y + 4 * int64(value)
            _rows(s, memory, y_block, v_stride, begin, count, group, column, columns, head_skip)
        number = state_after(states, positions, first, int32(stop - first))
        target = here + int64(number) * state_bytes
        _store_state(s, target, group, padded)


@cache
def linear_attention_kernel(key_dim: int, delta: bool) -> Kernel:
    """The kernel for keys of this dimension, with the delta rule or without."""
    assert 0 < key_dim <= MOST_KEY_DIM
    groups = 4 if key_dim <= 4 * USUAL_KEYS else 8
    keys = -(-key_dim // (4 * groups)) * 4
    few = keys <= USUAL_KEYS
    width = groups * keys
    exact = -(-key_dim // 4) * 4 == width
    tokens = min(16, STAGED // (8 * width) // AT_ONCE * AT_ONCE)
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
    }
    name = f"linear_attention_{'delta' if delta else 'sum'}_{width}{'' if exact else '_padded'}"
    return Kernel(
        name, _linear_attention, "l" * 18 + "ilii", 32 * groups, 168 if few else 255, constants, 12 // groups
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
    )  # fmt: skip
    kernel, written = linear_attention_kernel(shape.key_dim, shape.delta), (node.y, ("state", node.part))
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
