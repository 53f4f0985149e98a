"""Rows of linear attention whose keys, or whose every number, decay alone: Kimi delta attention; Mamba and
gated units.

Blocks, states and shared memory are those of `recurrent`; formulas: see `Ops.linear_attention`. After the
values there are, if keys decay alone, what multiplies each key's numbers (TOKENS of WIDTH) and the strengths
of changes (TOKENS); if each number does, the steps of values (TOKENS of COLUMNS), and the rates of a lane's
numbers are in its registers.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    fma,
    ld_f32,
    ldg_f32,
    lds_f32,
    lds_f32x4,
    maximum,
    near_reciprocal,
    rsqrt,
    st_f32,
    static,
    sts_f32,
    unknown,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.pointwise import exponential, softplus
from engine.backends.cuda.kernels.recurrent_parts import advance, over_groups, power, said_of, shortfall

COLUMNS = 32
GROUPS = 4
KEYS = 32
WIDTH = 128
TOKENS = 16
STAGES = 2
BOUND = UNIT = 0
"""Whether keys' decays are bound, and whether steps are those of gated units."""


def near_sigmoid(x: float) -> Any:
    """1 / (1 + e^-x), the last bit aside."""
    return near_reciprocal(float32(1.0) + exponential(-x))


def stage_decays(
    memory: int, decay: int, decay_stride: int, shift: int, rate: float, bound: float, begin: int, count: int,
    key_dim: int, me: int,
) -> None:  # fmt: skip
    """What multiplies the keys' numbers in `count` rows from `begin` on; `decay` and `shift` are addresses of
    the head's first numbers.
    """
    for start in static(range(0, WIDTH, 32 * GROUPS)):
        own = int32(me + start)
        if own < WIDTH:
            t, factor, more = int32(0), float32(0.0), float32(0.0)
            if own < key_dim:
                more = ldg_f32(shift + 4 * int64(own))
            while t < count:
                if own < key_dim:
                    given = ld_f32(decay + int64(begin + t) * decay_stride + 4 * int64(own)) + more
                    if BOUND == 1:
                        factor = power(-bound * near_sigmoid(-rate * given))
                    else:
                        factor = power(rate * softplus(given))
                at = int32(TOKENS * (2 * WIDTH + COLUMNS) + int32(int32(WIDTH * t) + own))
                sts_f32(int32(memory + int32(4 * at)), factor)
                t = unknown(int32(t + 1))


def stage_strength(memory: int, beta: int, row: int) -> None:
    """How much of its change a staged row makes; beta: the address of the head's number."""
    at = int32(TOKENS * (3 * WIDTH + COLUMNS) + row)
    sts_f32(int32(memory + int32(4 * at)), near_sigmoid(ld_f32(beta)))


def rows_by_key(
    s: Any, memory: int, y: int, stride: int, begin: int, count: int, group: int, column: int, columns: int
) -> None:
    """As `recurrent._rows`: the delta rule, after each key's numbers decayed."""
    t = int32(0)
    while t < count:
        keys = int32(memory + 4 * WIDTH * t + 16 * group)
        factors = int32(keys + 4 * TOKENS * (2 * WIDTH + COLUMNS))
        given = lds_f32(int32(memory + 8 * TOKENS * WIDTH + 4 * (COLUMNS * t + column)))
        strength = lds_f32(int32(memory + 4 * TOKENS * (3 * WIDTH + COLUMNS) + 4 * t))
        for i in static(range(KEYS // 4)):
            a, b, c, d = lds_f32x4(int32(factors + 16 * GROUPS * i))
            s[4 * i], s[4 * i + 1] = a * s[4 * i], b * s[4 * i + 1]
            s[4 * i + 2], s[4 * i + 3] = c * s[4 * i + 2], d * s[4 * i + 3]
        said = said_of(s, keys)
        change = strength * (given - over_groups(said))
        out = advance(s, keys, float32(1.0), change)
        out = over_groups(out)
        if group == 0 and column < columns:
            st_f32(y + int64(begin + t) * stride + 4 * int64(column), out)
        t = unknown(int32(t + 1))


def stage_steps(
    memory: int, decay: int, decay_stride: int, shift: int, begin: int, count: int, columns: int, me: int
) -> None:
    """The steps of a block's values in `count` rows from `begin` on; `decay` and `shift` are addresses of the
    first value's numbers.
    """
    column, more = int32(me & 31), float32(0.0)
    if column < columns:
        more = ldg_f32(shift + 4 * int64(column))
    t = int32(me >> 5)
    while t < count:
        step = float32(0.0)
        if column < columns:
            given = ld_f32(decay + int64(begin + t) * decay_stride + 4 * int64(column)) + more
            step = near_sigmoid(given) if UNIT == 1 else softplus(given)
        at = int32(TOKENS * (2 * WIDTH + COLUMNS) + int32(int32(COLUMNS * t) + column))
        sts_f32(int32(memory + int32(4 * at)), step)
        t = unknown(int32(t + GROUPS))


def load_rates(
    rates: Any, rate: int, stride: int, group: int, key_dim: int, column: int, columns: int
) -> None:
    """The rates of the lane's numbers, zeros past the last; `rate` is the address of the block's first."""
    for i in static(range(KEYS)):
        key = int32(4 * GROUPS * (i // 4) + int32(4 * group) + i % 4)
        rates[i] = float32(0.0)
        if key < key_dim and column < columns:
            rates[i] = ldg_f32(rate + int64(key) * stride + 4 * int64(column))


def rows_by_value(
    s: Any, rates: Any, memory: int, y: int, stride: int, begin: int, count: int, group: int, column: int,
    columns: int, skip: float, fresh: int,
) -> None:  # fmt: skip
    """As `recurrent._rows`, each number with its own decay; row `fresh` is a text's first one."""
    t = int32(0)
    while t < count:
        keys = int32(memory + 4 * WIDTH * t + 16 * group)
        given = lds_f32(int32(memory + 8 * TOKENS * WIDTH + 4 * (COLUMNS * t + column)))
        step = lds_f32(int32(memory + 4 * TOKENS * (2 * WIDTH + COLUMNS) + 4 * (COLUMNS * t + column)))
        change = step * given
        if UNIT == 1:
            left = maximum(shortfall(float32(2.0) * rates[0] * step), float32(1.0e-30))
            share = left * rsqrt(left)
            change = given if int32(begin + t) == fresh else share * given
        for i in static(range(KEYS)):
            s[i] = power(rates[i] * step) * s[i]
        out = advance(s, keys, float32(1.0), change)
        out = over_groups(out)
        if group == 0 and column < columns:
            st_f32(y + int64(begin + t) * stride + 4 * int64(column), fma(skip, given, out))
        t = unknown(int32(t + 1))
