"""Combines the splits of attention: out = sum of 2^(m_s - M) out_s / sum of 2^(m_s - M) l_s.

m_s, l_s, out_s are the maximum, sum and output of split s, M the largest m_s. A sink adds 2^(sink - M) to the
denominator. The result is transformed back where values are, and written as float32 or packed. Only splits
that contain positions of the row are read, in order from the row's first chunk, so nothing depends on other
rows. Source: the reduction of flash-decoding.
"""

from __future__ import annotations

from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    exp2,
    ld_f32,
    ld_f32x2,
    ld_i32,
    ldg_f32,
    lds_f32,
    maximum,
    reciprocal,
    registers,
    shared,
    shfl_f32,
    static,
    sts_f32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention.parts import HEAD, LOWEST, unseen
from engine.backends.cuda.kernels.common import LOG2_E, hadamard, warp_max, warp_sum
from engine.backends.cuda.kernels.packed_activations_write import store_four, write_bf16x2, write_fp16

WARPS = 4
THREADS = 32 * WARPS
AT_ONCE = 8
D, GROUPS, DP = 64, 2, 64
HEADS, ITEMS, WIDTH = 1, 2, 64
"""Heads of a block, their groups of 32 dimensions, and their dimensions."""
HADAMARD, FLOATS, FORM = 0, 1, ""
CHUNKED = 0
"""See `parts`."""
WHOLE = 0
"""1 if all splits are read, as of attention to chosen positions."""
ROW_SINKS = 0
"""1 if each row has its own sinks, in the rows of a `Buffer`."""


def _joined(heads: int, dim: int, begin: int, count: int, splits: int, sink: float, lane: int) -> float:
    """One dimension of a head's output.

    `heads` is the address of the head's split 0; `count` splits are read from `begin` on, modulo `splits`.
    `sink` is a score in base 2, or LOWEST for none.
    """
    one, two = float32(LOWEST), float32(LOWEST)
    one_sum, two_sum = float32(0.0), float32(0.0)
    size = int64(4 * (DP + HEAD))
    first = heads + 4 * HEAD + 4 * int64(dim)
    if lane < count:
        one, one_sum = ld_f32x2(heads + int64(int32(begin + lane) & int32(splits - 1)) * size)
    if int32(lane + 32) < count:
        two, two_sum = ld_f32x2(heads + int64(int32(int32(begin + lane) + 32) & int32(splits - 1)) * size)
    top = maximum(warp_max(maximum(one, two)), sink)
    one, two = exp2(one - top), exp2(two - top)
    total = warp_sum(one_sum * one + two_sum * two) + (
        exp2(sink - top) if sink > float32(LOWEST) else float32(0.0)
    )
    out = float32(0.0)
    parts = registers(float32(0.0), AT_ONCE)
    k = int32(0)
    while k < count:
        for u in static(range(AT_ONCE)):
            at = int32(k + u)
            parts[u] = float32(0.0)
            if at < count:
                parts[u] = ld_f32(first + int64(int32(begin + at) & int32(splits - 1)) * size)
        for u in static(range(AT_ONCE)):
            at = int32(k + u)
            share = shfl_f32(one, int32(at & 31)) if at < 32 else shfl_f32(two, int32(at & 31))
            if at < count:
                out = out + share * parts[u]
        k = int32(k + AT_ONCE)
    return out * reciprocal(total)


def _combine(
    partial: int, partial_stride: int, y: int, y_stride: int, packed: int, packed_stride: int, sinks: int,
    positions: int, heads: int, splits: int, window: int,
) -> None:  # fmt: skip
    """Combine the splits of HEADS heads of a row. Grid (HEADS heads, row).

    Input: `partial`, stride in bytes. Outputs: y and the packed activations `packed`, strides in bytes.
    `sinks`: address of float32 (heads,) or 0, with ROW_SINKS (rows, heads); `positions`: that of the rows'
    positions; `window`: 0 for none.
    """
    wait_for_others()
    base = shared(4 * WIDTH)
    lane, warp, row = int32(thread() & 31), int32(thread() >> 5), int64(block_y())
    own = ld_i32(positions + 4 * row)
    begin = int32(int32(unseen(own, window) + 1) >> 6)
    count = int32(int32(int32(own >> 6) - begin) + 1)
    count = count if count < splits else splits
    if WHOLE == 1:
        begin, count = int32(0), splits
    first_head = int32(block_x() * HEADS)
    for k in static(range((ITEMS + WARPS - 1) // WARPS)):
        item = int32(warp + WARPS * k)
        local = int32(item // GROUPS)
        group = int32(item - int32(local * GROUPS))
        head = int32(first_head + local)
        head = head if head < heads else int32(heads - 1)
        dim = int32(int32(group << 5) + lane)
        sink = float32(LOWEST)
        if ROW_SINKS == 1:
            stride = int64(int32(int32(heads + 15) >> 4)) * 64  # as `Buffer.stride`
            sink = ld_f32(sinks + row * stride + 4 * int64(head)) * float32(LOG2_E)
        elif sinks != 0:
            sink = ldg_f32(sinks + 4 * int64(head)) * float32(LOG2_E)
        source = partial + row * partial_stride + int64(int32(head * splits)) * int64(4 * (DP + HEAD))
        out = _joined(source, dim, begin, count, splits, sink, lane)
        if HADAMARD == 1:
            out = hadamard(out, lane)
        if item < ITEMS and dim < D:
            sts_f32(int32(base + int32(4 * int32(int32(local * D) + dim))), out)
    barrier()
    width = int32(heads * D)
    for k in static(range((WIDTH + 4 * THREADS - 1) // (4 * THREADS))):
        local = int32(int32(4 * thread()) + 4 * THREADS * k)
        column = int32(int32(first_head * D) + local)
        a, b, c, d = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
        if local < WIDTH:
            at = int32(base + int32(4 * local))
            a = lds_f32(at) if column < width else a
            b = lds_f32(int32(at + 4)) if int32(column + 1) < width else b
            c = lds_f32(int32(at + 8)) if int32(column + 2) < width else c
            d = lds_f32(int32(at + 12)) if int32(column + 3) < width else d
        else:
            column = int32(1 << 28)
        if FLOATS == 1:
            store_four(y + row * y_stride, column, width, a, b, c, d)
        if FORM == "fp16":
            write_fp16(packed + row * packed_stride, width, column, a, b, c, d)
        if FORM == "bf16x2":
            write_bf16x2(packed + row * packed_stride, width, column, a, b, c, d)
