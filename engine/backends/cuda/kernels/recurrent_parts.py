"""What the kernels of linear attention share: rows in shared memory, and a lane's part of a state.

The layout of shared memory: keys, then queries (TOKENS rows of WIDTH), values (TOKENS of COLUMNS), and what
`recurrent` and `selective` have of their own.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    absolute,
    fma,
    ld_f32,
    lds_f32x4,
    maximum,
    minimum,
    registers,
    shfl_xor_f32,
    st_f32,
    static,
    sts_f32,
    unknown,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.pointwise import exponential

AT_ONCE = 4
"""Rows whose numbers are loaded at once."""
COLUMNS = 32
"""Values of a block of linear attention."""

GROUPS = 4
KEYS = 32
WIDTH = 128
EXACT = True
TOKENS = 16
STAGES = 2


def growth(x: float) -> Any:
    """e^x - 1, for |x| up to 1/8."""
    series = fma(x, fma(x, float32(1.0 / 120.0), float32(1.0 / 24.0)), float32(1.0 / 6.0))
    return x * fma(x, fma(x, series, float32(0.5)), float32(1.0))


def _near(x: float) -> Any:
    return maximum(minimum(x, float32(0.125)), float32(-0.125))


def power(x: float) -> Any:
    """e^x, near 1 to the last bits: a decay is multiplied thousands of times."""
    return float32(1.0) + growth(_near(x)) if absolute(x) < float32(0.125) else exponential(x)


def shortfall(x: float) -> Any:
    """1 - e^x, near 0 to the last bits."""
    return -growth(_near(x)) if absolute(x) < float32(0.125) else float32(1.0) - exponential(x)


def stage(
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


def over_groups(total: float) -> Any:
    """The sum over the lanes that share a column, the same in each."""
    for stage in static(range(STAGES)):
        total = total + shfl_xor_f32(total, int32(16 >> stage))
    return total


def advance(s: Any, memory: int, decay: float, change: float) -> Any:
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


def said_of(s: Any, memory: int) -> Any:
    """The lane's part of s^T key."""
    part = registers(float32(0.0), 4)
    for i in static(range(KEYS // 4)):
        k0, k1, k2, k3 = lds_f32x4(int32(memory + 16 * GROUPS * i))
        part[0] = fma(k0, s[4 * i], part[0])
        part[1] = fma(k1, s[4 * i + 1], part[1])
        part[2] = fma(k2, s[4 * i + 2], part[2])
        part[3] = fma(k3, s[4 * i + 3], part[3])
    return (part[0] + part[1]) + (part[2] + part[3])


def load_state(s: Any, source: int, group: int, padded: int) -> None:
    """The lane's keys of its column, from a block's column and the group's first key on."""
    for i in static(range(KEYS)):
        if EXACT or int32(4 * GROUPS * (i // 4) + 4 * group) < padded:
            s[i] = ld_f32(source + 128 * (4 * GROUPS * (i // 4) + i % 4))


def store_state(s: Any, target: int, group: int, padded: int) -> None:
    """The reverse of `load_state`."""
    for i in static(range(KEYS)):
        if EXACT or int32(4 * GROUPS * (i // 4) + 4 * group) < padded:
            st_f32(target + 128 * (4 * GROUPS * (i // 4) + i % 4), s[i])
