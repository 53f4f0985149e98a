"""The generalised delta rule of RWKV-7: keys decay alone, and what a state says of one vector is taken out of
it along another; and RWKV-6, where nothing is taken out.

Blocks, states and their scan over rows are those of `recurrent`; formulas: see `DeltaWeights`. Shared memory
has what `recurrent_parts.stage` puts there, with u in the place of keys; then what multiplies each key's
numbers (TOKENS of WIDTH), with the delta rule k removal and a k removal (TOKENS of WIDTH each), and two
numbers of each row: 1 / |k removal|^2, and the sum over r u bonus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

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
    lds_f32,
    lds_f32x2,
    lds_f32x4,
    maximum,
    minimum,
    near_reciprocal,
    registers,
    shared,
    st_f32,
    static,
    sts_f32,
    sts_f32x2,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import run_of, state_after, state_before, warp_sum
from engine.backends.cuda.kernels.pointwise import exponential
from engine.backends.cuda.kernels.recurrent_parts import (
    AT_ONCE,
    COLUMNS,
    load_state,
    over_groups,
    power,
    said_of,
    shortfall,
    stage,
    store_state,
)
from engine.backends.cuda.kernels.selective import near_sigmoid
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.recurrent import GeneralisedDelta
from engine.backends.states import MOST_KEY_DIM

STAGED = 36 << 10
"""Bytes of shared memory for the rows that a block has at hand, or more if those are fewer than `AT_ONCE`."""
MOST_DECAY = 5.0
"""exp(-exp(x)) is 0 for all greater x."""
SLOPE = -math.exp(-0.5)
"""Of the delta rule's logarithms of decays."""

GROUPS = 4
KEYS = 16
WIDTH = 64
EXACT = True
TOKENS = 16
STAGES = 2
RULE = "delta"
VECTORS = 5
"""Of `WIDTH` numbers that a row has in shared memory."""


def _vector(memory: int, number: int, row: int) -> int:
    """Where a row's vector `number` begins, of those after its values."""
    rows = int32(int32(TOKENS * int32(2 + number)) + row)
    return int32(memory + 4 * int32(int32(WIDTH * rows) + TOKENS * COLUMNS))


def _pair(memory: int, row: int) -> int:
    """Where a row's two numbers are."""
    return int32(memory + 4 * int32(TOKENS * (VECTORS * WIDTH + COLUMNS) + int32(2 * row)))


def _prepare_delta(
    memory: int, row: int, own: int, decay: float, rate: float, removal: float, mixing: float
) -> None:
    """Replace number `own` of a staged row's key by u's, and store what the delta rule makes besides."""
    here, a = int32(memory + 4 * int32(int32(WIDTH * row) + own)), near_sigmoid(rate)
    key = lds_f32(here)
    removed = key * removal
    sts_f32(here, key * fma(a - float32(1.0), mixing, float32(1.0)))
    sts_f32(int32(_vector(memory, int32(0), row) + 4 * own), power(float32(SLOPE) * near_sigmoid(decay)))
    sts_f32(int32(_vector(memory, int32(1), row) + 4 * own), removed)
    sts_f32(int32(_vector(memory, int32(2), row) + 4 * own), a * removed)


def _prepare_decayed(memory: int, row: int, own: int, decay: float) -> None:
    """The same without the delta rule."""
    size = -exponential(minimum(decay, float32(MOST_DECAY)))
    sts_f32(int32(_vector(memory, int32(0), row) + 4 * own), power(size))
    if RULE == "gated":
        here = int32(memory + 4 * int32(int32(WIDTH * row) + own))
        key = lds_f32(here)
        sts_f32(here, key * shortfall(size))


def _prepare(
    memory: int, decay: int, decay_stride: int, rate: int, rate_stride: int, removal: int, mixing: int,
    begin: int, count: int, key_dim: int, me: int,
) -> None:  # fmt: skip
    """What `count` staged rows from `begin` on make of their numbers, each by the thread that staged it; the
    addresses are those of the head's first numbers.
    """
    for start in static(range(0, WIDTH, 32 * GROUPS)):
        own = int32(me + start)
        if own < WIDTH:
            at = 4 * int64(own)
            decay_at = decay + int64(begin) * decay_stride + at
            rate_at = rate + int64(begin) * rate_stride + at
            taken, mixed = float32(0.0), float32(0.0)
            if RULE == "delta" and own < key_dim:
                taken, mixed = ldg_f32(removal + at), ldg_f32(mixing + at)
            t = int32(0)
            while t < count:
                decays = registers(float32(0.0), AT_ONCE)
                rates = registers(float32(0.0), AT_ONCE)
                for i in static(range(AT_ONCE)):
                    if own < key_dim and int32(t + i) < count:
                        decays[i] = ld_f32(decay_at)
                        if RULE == "delta":
                            rates[i] = ld_f32(rate_at)
                    decay_at, rate_at = decay_at + decay_stride, rate_at + rate_stride
                for i in static(range(AT_ONCE)):
                    if RULE == "delta":
                        _prepare_delta(memory, int32(t + i), own, decays[i], rates[i], taken, mixed)
                    else:
                        _prepare_decayed(memory, int32(t + i), own, decays[i])
                t = unknown(int32(t + AT_ONCE))


def _sum_rows(memory: int, bonus: int, count: int, key_dim: int, me: int) -> None:
    """The two numbers of `count` staged rows: a warp has every GROUPS-th."""
    lane = int32(me & 31)
    for start in range(0, count, GROUPS):
        row = int32(int32(start) + (me >> 5))
        square, weight = float32(0.0), float32(0.0)
        for first in static(range(0, WIDTH, 32)):
            own = int32(lane + first)
            if own < key_dim and row < count:
                here = int32(memory + 4 * int32(int32(WIDTH * row) + own))
                key, query = lds_f32(here), lds_f32(int32(here + 4 * TOKENS * WIDTH))
                weight = fma(query * key, ldg_f32(bonus + 4 * int64(own)), weight)
                if RULE == "delta":
                    removed = lds_f32(int32(_vector(memory, int32(1), row) + 4 * own))
                    square = fma(removed, removed, square)
        weight = warp_sum(weight)
        if RULE == "delta":
            square = warp_sum(square)
        if lane == 0 and row < count:
            sts_f32x2(_pair(memory, row), near_reciprocal(maximum(square, float32(1.0e-24))), weight)


def _advance(s: Any, memory: int, taken: float, given: float) -> Any:
    """Advance s by a row; returns the lane's part of s^T r, of s before the row with "bonus". `memory`: the
    lane's first number of u; `taken`: what s said, to be added along a n.
    """
    part = registers(float32(0.0), 4)
    query = int32(memory + 4 * TOKENS * WIDTH)
    factor = int32(query + 4 * TOKENS * (WIDTH + COLUMNS))
    for i in static(range(KEYS // 4)):
        u = registers(float32(0.0), 4)
        r = registers(float32(0.0), 4)
        w = registers(float32(0.0), 4)
        along = registers(float32(0.0), 4)
        u[0], u[1], u[2], u[3] = lds_f32x4(int32(memory + 16 * GROUPS * i))
        r[0], r[1], r[2], r[3] = lds_f32x4(int32(query + 16 * GROUPS * i))
        w[0], w[1], w[2], w[3] = lds_f32x4(int32(factor + 16 * GROUPS * i))
        if RULE == "delta":
            along[0], along[1], along[2], along[3] = lds_f32x4(
                int32(factor + 8 * TOKENS * WIDTH + 16 * GROUPS * i)
            )
        for j in static(range(4)):
            if RULE == "bonus":
                part[j] = fma(r[j], s[4 * i + j], part[j])
            s[4 * i + j] = w[j] * s[4 * i + j]
            if RULE == "delta":
                s[4 * i + j] = fma(along[j], taken, s[4 * i + j])
            s[4 * i + j] = fma(u[j], given, s[4 * i + j])
            if RULE != "bonus":
                part[j] = fma(r[j], s[4 * i + j], part[j])
    return (part[0] + part[1]) + (part[2] + part[3])


def _rows(
    s: Any, memory: int, y: int, own: int, stride: int, begin: int, count: int, group: int, column: int,
    columns: int,
) -> None:  # fmt: skip
    """Advance s by the staged rows, which begin at row `begin`. y, own: the addresses of the block's first
    result, and of its value times the row's weight.
    """
    t = int32(0)
    while t < count:
        keys = int32(memory + 4 * WIDTH * t + 16 * group)
        given = lds_f32(int32(memory + 8 * TOKENS * WIDTH + 4 * (COLUMNS * t + column)))
        inverse, weight, taken = float32(0.0), float32(0.0), float32(0.0)
        if RULE != "gated":
            inverse, weight = lds_f32x2(_pair(memory, t))
        if RULE == "delta":
            said = said_of(s, int32(keys + 4 * TOKENS * (3 * WIDTH + COLUMNS)))
            taken = -(inverse * over_groups(said))
        out = _advance(s, keys, taken, given)
        out = over_groups(out)
        if group == 0 and column < columns:
            at = int64(begin + t) * stride + 4 * int64(column)
            st_f32(y + at, out)
            st_f32(own + at, weight * given)
        t = unknown(int32(t + 1))  # not unrolled, which would take twice the registers


def _generalised_delta(
    r: int, r_stride: int, k: int, k_stride: int, v: int, v_stride: int, decay: int, decay_stride: int,
    rate: int, rate_stride: int, y: int, y_stride: int, removal: int, mixing: int, bonus: int, state: int,
    state_bytes: int, positions: int, states: int, runs: int, rows: int, shared_by: int, key_dim: int,
    value_dim: int,
) -> None:  # fmt: skip
    """`Ops.generalised_delta`. Grid (32 values of a head, head, 1), or with `runs` (32 values of a head,
    head, row), where the first row's block has its run.

    r, decay and rate (rows, H Dk), k (rows, G Dk), v (rows, G Dv), y (rows, 2 H Dv): float32, strides in
    bytes. removal, mixing and bonus float32 (H, Dk), the first two with the delta rule alone. `shared_by`
    heads have the same keys and values.
    """
    me, head, row = int32(thread()), int32(block_y()), int32(block_z())
    lane, memory = int32(me & 31), int32(shared(4 * TOKENS * (VECTORS * WIDTH + COLUMNS + 2)))
    group = int32(lane >> (5 - STAGES))
    column = int32((me >> 5 << (5 - STAGES)) + (lane & (32 // GROUPS - 1)))
    tile, padded = int32(head * blocks_x() + block_x()), int32(int32(key_dim + 3) >> 2 << 2)
    value, of_keys = int32(COLUMNS * block_x()), int32(int32(head) // int32(shared_by))
    columns = int32(value_dim - value)
    result, given = int32(head * value_dim + value), int32(of_keys * value_dim + value)
    keys, numbers = k + 4 * int64(int32(of_keys - head)) * int64(key_dim), 4 * int64(head) * int64(key_dim)
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
                memory, r, r_stride, keys, k_stride, v, v_stride, int32(begin), count, head, key_dim, given,
                columns, me,
            )  # fmt: skip
            _prepare(
                memory, decay + numbers, decay_stride, rate + numbers, rate_stride, removal + numbers,
                mixing + numbers, int32(begin), count, key_dim, me,
            )  # fmt: skip
            barrier()
            if RULE != "gated":
                _sum_rows(memory, bonus + numbers, count, key_dim, me)
                barrier()
            block = y + 4 * int64(result)
            own = block + 4 * int64(blocks_y()) * int64(value_dim)
            _rows(s, memory, block, own, y_stride, begin, count, group, column, columns)
        number = state_after(states, positions, first, int32(stop - first))
        target = place + int64(number) * state_bytes
        store_state(s, target, group, padded)


@cache
def generalised_delta_kernel(key_dim: int, rule: str) -> Kernel:
    """The kernel for keys of this dimension by this `DeltaWeights.rule`."""
    assert 0 < key_dim <= MOST_KEY_DIM
    groups = 4 if key_dim <= 128 else 8
    keys = -(-key_dim // (4 * groups)) * 4
    width, vectors = groups * keys, 5 if rule == "delta" else 3
    exact = -(-key_dim // 4) * 4 == width
    tokens = min(16, STAGED // (4 * (vectors * width + COLUMNS + 2)) // AT_ONCE * AT_ONCE)
    constants = {
        "GROUPS": groups,
        "KEYS": keys,
        "WIDTH": width,
        "EXACT": int(exact),
        "TOKENS": max(tokens, AT_ONCE),
        "STAGES": groups.bit_length() - 1,
        "AT_ONCE": AT_ONCE,
        "COLUMNS": COLUMNS,
        "RULE": rule,
        "VECTORS": vectors,
        "SLOPE": SLOPE,
        "MOST_DECAY": MOST_DECAY,
    }
    name = f"generalised_delta_{rule}_{width}{'' if exact else '_padded'}"
    limit = 168 if keys <= 32 else 255
    return Kernel(name, _generalised_delta, "l" * 20 + "iiii", 32 * groups, limit, constants, 8 // groups)


def _lower(context: Context, node: GeneralisedDelta) -> Calls:
    weights, shape, device = node.weights, node.weights.shape, node.device
    inputs = (node.r, node.k, node.v, node.decay, node.rate, node.y)
    arguments: tuple[Argument, ...] = (
        *(each for buffer in inputs for each in (buffer, buffer.stride)),
        *(context.vector(each, device) for each in (weights.removal, weights.mixing, weights.bonus)),
        context.cache.state_address(node.part), 4 * shape.floats, Runtime.POSITIONS, Runtime.STATES,
        Runtime.RUNS, Runtime.ROWS, shape.value_heads // shape.key_heads, shape.key_dim, shape.value_dim,
    )  # fmt: skip
    kernel = generalised_delta_kernel(shape.key_dim, weights.rule)
    written = node.y, ("state", node.part)
    heads, blocks = shape.value_heads, -(-shape.value_dim // COLUMNS)
    several = Call(kernel, lambda rows: (blocks, heads, rows), arguments, node.reads, written)
    return (Call(kernel, lambda _: (blocks, heads, 1), arguments, node.reads, written, several=several),)


LOWER: Table = {GeneralisedDelta: _lower}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: all published models have heads of 64."""
    for rule in ("delta", "bonus", "gated"):
        yield generalised_delta_kernel(64, rule)
