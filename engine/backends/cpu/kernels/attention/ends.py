"""What attention does before the pages and after them: queries go to scratch memory, outputs come from it."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i64, st_f32
from engine.backends.cpu.kernels.attention.arguments import (
    A_DIM,
    A_HEADS,
    A_KV_HEADS,
    A_OUT_WIDTH,
    A_Q,
    A_Q_STRIDE,
    A_Q_WIDTH,
    A_SCALE,
    A_SINK_STRIDE,
    A_SINKS,
    A_VALUE_DIM,
    A_Y,
    A_Y_STRIDE,
)
from engine.backends.cpu.kernels.attention.softmax import (
    MINUS_INFINITY,
    exp_scalar,
    row_clear,
    row_scale,
    row_times,
)

KEY_FACTOR = VALUE_FACTOR = np.float32(1)


def begin_template(args: int, g: int, first_row: int, queries: int, q: int, out: int, state: int) -> None:
    """Copy the head group's scaled queries to scratch; set outputs and sums to 0, maxima to -infinity."""
    groups, dim, scale = ld_i64(args + 8 * A_KV_HEADS), ld_i64(args + 8 * A_DIM), ld_f64(args + 8 * A_SCALE)
    ratio, q_width, width = (
        ld_i64(args + 8 * A_HEADS) // groups,
        ld_i64(args + 8 * A_Q_WIDTH),
        ld_i64(args + 8 * A_OUT_WIDTH),
    )
    for i in range(queries):
        source = (
            ld_i64(args + 8 * A_Q)
            + (first_row + i // ratio) * ld_i64(args + 8 * A_Q_STRIDE)
            + 4 * dim * (g * ratio + i % ratio)
        )
        row_times(source, dim, scale * KEY_FACTOR, q + 4 * i * q_width)
        for d in range(dim, q_width):
            st_f32(q + 4 * (i * q_width + d), 0.0)
        row_clear(out + 4 * i * width, width // 16)
        st_f32(state + 8 * i, MINUS_INFINITY)
        st_f32(state + 8 * i + 4, 0.0)


def write_out_template(args: int, g: int, first_row: int, queries: int, state: int, out: int) -> None:
    """Write normalised outputs to y; a sink adds e^sink to the sum."""
    groups, dim, width = (
        ld_i64(args + 8 * A_KV_HEADS),
        ld_i64(args + 8 * A_VALUE_DIM),
        ld_i64(args + 8 * A_OUT_WIDTH),
    )
    ratio, sinks = ld_i64(args + 8 * A_HEADS) // groups, ld_i64(args + 8 * A_SINKS)
    for i in range(queries):
        target = (
            ld_i64(args + 8 * A_Y)
            + (first_row + i // ratio) * ld_i64(args + 8 * A_Y_STRIDE)
            + 4 * dim * (g * ratio + i % ratio)
        )
        total = ld_f32(state + 8 * i + 4)
        if sinks:
            own = sinks + (first_row + i // ratio) * ld_i64(args + 8 * A_SINK_STRIDE)
            before, sink = ld_f32(state + 8 * i), ld_f32(own + 4 * (g * ratio + i % ratio))
            top = max(before, sink)
            factor = exp_scalar(before - top)
            total = total * factor + exp_scalar(sink - top)
            row_scale(out + 4 * i * width, width // 16, factor)
        row_times(out + 4 * i * width, dim, VALUE_FACTOR / total, target)
