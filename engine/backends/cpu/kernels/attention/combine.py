"""Joins the partial results of attention over the splits of a small batch."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, ld_i64, st_f32
from engine.backends.cpu.kernels.attention.softmax import (
    MINUS_INFINITY,
    exp_scalar,
    row_add,
    row_clear,
    row_times,
)
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    ROWS,
    RUN_ROWS,
    RUN_TABLE,
    RUN_WORDS,
    SMALL_BATCH,
)
from engine.core import PAGE_TOKENS

SPLITS = 16
"""Tiles among which a small batch divides the pages of each sequence, for each key/value head."""
SCRATCH = 64
LOWEST = np.float32(MINUS_INFINITY)
ONE = VALUE_FACTOR = np.float32(1)
(C_PARTIAL, C_Y, C_Y_STRIDE, C_HEADS, C_KV_HEADS, C_DIM, C_WINDOW, C_SINKS,
 C_SINK_STRIDE, C_STEP) = range(10)  # fmt: skip


def combine(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each head of a small batch: y = sum of e^(m_s - M) out_s / sum of e^(m_s - M) l_s.

    s runs over the splits that had pages: maximum m_s, sum l_s, output out_s; M is the largest m_s. A sink
    takes part in M and adds e^(sink - M) to the denominator. `C_STEP` is as `A_STEP`.
    """
    step += ld_i64(args + 8 * C_STEP)
    groups, dim = ld_i64(args + 8 * C_KV_HEADS), ld_i64(args + 8 * C_DIM)
    ratio, width = ld_i64(args + 8 * C_HEADS) // groups, (dim + 15) // 16 * 16
    g, h = tile // ratio, tile % ratio
    size = 4 * (2 + width)
    positions, sinks = ld_i64(step + 8 * POSITIONS), ld_i64(args + 8 * C_SINKS)
    run = step + 8 * (RUN_TABLE - RUN_WORDS)
    following = begun = end = 0
    for r in range(ld_i64(step + 8 * ROWS)):
        if r == following:
            run += 8 * RUN_WORDS
            following += ld_i64(run + 8 * RUN_ROWS)
            own, window = ld_i32(positions + 4 * r), ld_i64(args + 8 * C_WINDOW)
            begun = (own - own % -window if window < 0 else max(0, own - window + 1)) // PAGE_TOKENS
            end = ld_i32(positions + 4 * (following - 1)) // PAGE_TOKENS + 1
        splits = min(SPLITS, end)
        first = ld_i64(args + 8 * C_PARTIAL) + size * (SMALL_BATCH * ratio * g + r * ratio + h)
        jump = size * SMALL_BATCH * ratio * groups
        y = ld_i64(args + 8 * C_Y) + r * ld_i64(args + 8 * C_Y_STRIDE) + 4 * dim * tile
        sink = sinks + r * ld_i64(args + 8 * C_SINK_STRIDE) + 4 * tile
        top = ld_f32(sink) if sinks else LOWEST
        for s in range(splits):
            if (s - begun) % SPLITS < end - begun:
                top = max(top, ld_f32(first + s * jump))
        total = 0.0
        if sinks:
            total += exp_scalar(ld_f32(sink) - top)
        row_clear(scratch + SCRATCH, width // 16)
        for s in range(splits):
            if (s - begun) % SPLITS >= end - begun:
                continue
            factor = exp_scalar(ld_f32(first + s * jump) - top)
            total += factor * ld_f32(first + s * jump + 4)
            row_add(scratch + SCRATCH, first + s * jump + 8, width // 16, factor)
        row_times(scratch + SCRATCH, dim, ONE / total, y)


def keep_partial_template(queries: int, width: int, narrow: int, state: int, out: int, target: int) -> None:
    """Write the maximum, sum and unnormalised output of each query for `combine`."""
    for i in range(queries):
        st_f32(target, ld_f32(state + 8 * i))
        st_f32(target + 4, ld_f32(state + 8 * i + 4))
        row_times(out + 4 * i * width, narrow, VALUE_FACTOR, target + 8)
        target += 4 * (2 + narrow)
