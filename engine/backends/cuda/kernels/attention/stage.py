"""What tensor-core attention does around its loop: loads queries and writes results.

See `mma`. Shared memory holds float32 queries, later outputs, at 0; query fragments at FRAGMENTS; at STATE
the columns' score factors and scores of position 0, later each warp's eight maxima and eight sums.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    absolute,
    barrier,
    bits_float,
    block_x,
    block_y,
    blocks_x,
    blocks_y,
    exp2,
    float_bits,
    half_float,
    high_half_float,
    ld_f32,
    ld_i32,
    lds_f32,
    lds_f32x2,
    lds_f32x4,
    maximum,
    pack_fp16,
    registers,
    st_f32,
    st_f32x2,
    static,
    sts_f32,
    sts_u32x4,
    thread,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.attention.kv_read import element_fp16
from engine.backends.cuda.kernels.attention.parts import HEAD, LOWEST, capped, row_of, rows_sum
from engine.backends.cuda.kernels.common import LOG2_E, hadamard, warp_max, warp_sum

WARPS = 4
THREADS = 32 * WARPS
COLUMNS = 8

D, GROUPS, DP = 64, 2, 64
HADAMARD = 0
KEPT_FIRST = 0
"""1 if q4 stores a first key or value whole."""
FRAGMENTS, STATE = 0, 0
K_ROW = K_SCALES = K_LIMIT = V_ROW = V_SCALES = V_LIMIT = 0
K_FACTOR = V_FACTOR = 1.0
K_first: Any = element_fp16
V_first: Any = element_fp16


def _first_key(block: int, dim: int) -> float:
    """A number of the key at position 0, transformed where keys are; 0 for dimensions past the format's."""
    if dim < K_LIMIT:
        return K_first(block, int32(0), dim, int32(K_ROW), int32(K_SCALES), int32(GROUPS))
    return float32(0.0)


def first_value(block: int, dim: int) -> float:
    """A number of the value at position 0, transformed where values are, divided by V_FACTOR, or 0."""
    if dim < V_LIMIT:
        return V_first(block, int32(0), dim, int32(V_ROW), int32(V_SCALES), int32(GROUPS)) * float32(
            1.0 / V_FACTOR
        )
    return float32(0.0)


def stage(
    base: int,
    q: int,
    q_stride: int,
    first: int,
    count: int,
    ratio: int,
    scale: float,
    block: int,
    begins: int,
) -> None:
    """Load queries into shared memory, transformed where keys are, scaled by a power of two to order one.

    The 8 factors that scores must be multiplied by go to STATE; with `begins`,
    the scores of position 0 follow.
    """
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    x = registers(float32(0.0), GROUPS)
    for k in static(range(COLUMNS // WARPS)):
        column = int32(warp + WARPS * k)
        index = int32(first + (column if column < count else int32(count - 1)))
        row = row_of(index, ratio)
        head = int32(block_y() * ratio + int32(index - int32(row * ratio)))
        source = q + int64(row) * q_stride + 4 * int64(head) * int64(D)
        top = float32(0.0)
        for i in static(range(GROUPS)):
            dim = int32(lane + 32 * i)
            x[i] = float32(0.0)
            if dim < D:
                x[i] = ld_f32(source + 4 * int64(dim))
            if HADAMARD == 1:
                x[i] = hadamard(x[i], lane)
            top = maximum(top, absolute(x[i]))
        exponent = uint32(uint32(float_bits(warp_max(top))) >> uint32(23))
        if exponent > uint32(252):
            exponent = uint32(252)
        if exponent < uint32(2):
            exponent = uint32(2)
        less = bits_float(uint32(uint32(uint32(254) - exponent) << uint32(23)))
        factor = bits_float(uint32(exponent << uint32(23))) * scale * float32(K_FACTOR)
        for i in static(range(GROUPS)):
            x[i] = x[i] * less
            sts_f32(int32(base + int32(4 * int32(int32(column * DP) + int32(lane + 32 * i)))), x[i])
        if lane == 0:
            sts_f32(int32(base + STATE + int32(4 * column)), factor)
        if KEPT_FIRST == 1:  # noqa: SIM102 - the outer condition is constant
            if begins != 0:
                total = float32(0.0)
                for i in static(range(GROUPS)):
                    total = total + x[i] * _first_key(block, int32(lane + 32 * i))
                total = warp_sum(total)
                if lane == 0:
                    sts_f32(
                        int32(base + STATE + 32 + int32(4 * column)), total * factor * float32(1.0 / K_FACTOR)
                    )


def fragments(base: int) -> None:
    """Turn loaded queries into columns of `mma_fp16`: per 16 dimensions two words, two of the remainder."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    for k in static(range((2 * GROUPS + WARPS - 1) // WARPS)):
        step = int32(warp + WARPS * k)
        if step < 2 * GROUPS:
            dim = int32(
                int32(int32(step >> 1) << 5)
                + int32(int32(int32(lane & 3) << 3) + int32(int32(step & 1) << 2))
            )
            a, b, c, d = lds_f32x4(int32(base + int32(4 * int32(int32(int32(lane >> 2) * DP) + dim))))
            low, high = pack_fp16(a, b), pack_fp16(c, d)
            low_rest = pack_fp16(a - half_float(low), b - high_half_float(low))
            high_rest = pack_fp16(c - half_float(high), d - high_half_float(high))
            at = int32(base + FRAGMENTS + int32(16 * int32(int32(step << 5) + lane)))
            sts_u32x4(at, low, high, low_rest, high_rest)


def base_two(score: float, factor: float, cap: float) -> float:
    """A sum of products as a score in base 2, with the soft cap if `cap` is not 0."""
    if cap > float32(0.0):
        return capped(score * factor, cap)
    return score * (factor * float32(LOG2_E))


def share_maxima(base: int, top_a: float, top_b: float, sum_a: float, sum_b: float) -> None:
    """Write this warp's maxima and sums, eight of each, to shared memory.

    All warps must have finished reading the staged state.
    """
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    sum_a, sum_b = rows_sum(sum_a), rows_sum(sum_b)
    if lane < 4:
        at = int32(base + STATE + int32(64 * warp) + int32(8 * lane))
        sts_f32(at, top_a)
        sts_f32(int32(at + 4), top_b)
        sts_f32(int32(at + 32), sum_a)
        sts_f32(int32(at + 36), sum_b)
    barrier()


def before(at: int, turn: int) -> Any:
    """The sums of earlier warps."""
    if turn > 0:
        return lds_f32x2(at)
    return float32(0.0), float32(0.0)


def share(base: int, column: int, warp: int) -> float:
    """The factor that scales a warp's sums of a column to the maximum over all warps."""
    at = int32(base + STATE + int32(4 * column))
    top = float32(LOWEST)
    for i in static(range(WARPS)):
        top = maximum(top, lds_f32(int32(at + 64 * i)))
    return exp2(lds_f32(int32(at + int32(64 * warp))) - top)


def write_partial(base: int, partial: int, partial_stride: int, first: int, count: int, ratio: int) -> None:
    """Combine the warps' maxima and sums, and write them and the outputs to the partial results."""
    me, i = thread(), int32(0)
    while i < count:
        row = row_of(int32(first + i), ratio)
        head = int32(int32(block_y() * ratio) + int32(int32(first + i) - int32(row * ratio)))
        place = int64(int32(head * blocks_x()) + block_x()) * int64(4 * (DP + HEAD))
        target = partial + int64(row) * partial_stride + place
        if me == 0:
            top, total, at = float32(LOWEST), float32(0.0), int32(base + STATE + int32(4 * i))
            for w in static(range(WARPS)):
                top = maximum(top, lds_f32(int32(at + 64 * w)))
            for w in static(range(WARPS)):
                total = total + lds_f32(int32(at + 64 * w + 32)) * exp2(lds_f32(int32(at + 64 * w)) - top)
            st_f32x2(target, top, total)
        dim = me
        while dim < DP:
            tile = int32(int32(int32(dim >> 6) << 3) + int32(int32(dim & 7)))
            at = int32(
                base + int32(256 * tile) + int32(4 * int32(int32(int32(int32(dim >> 3) & 7) << 3) + i))
            )
            st_f32(target + 4 * HEAD + 4 * int64(dim), lds_f32(at) * float32(V_FACTOR))
            dim = int32(dim + THREADS)
        i = int32(i + 1)


def own_index(column: int, first: int, count: int) -> int:
    """The number of a block's column among all, that of the last one for columns past it."""
    return int32(first + (column if column < count else int32(count - 1)))


def own_position(column: int, first: int, count: int, start: int, ratio: int) -> int:
    """The position of a column's row; columns past the last use the last one's."""
    return int32(start + row_of(own_index(column, first, count), ratio))


def block_of(pages: int, table: int, chunk: int) -> int:
    """The index of the cache block that holds a chunk of this key/value head.

    `table` is where the sequence's block table begins in `pages`.
    """
    entry = int32(int32(chunk >> 2) + table)
    return int64(int32(ld_i32(pages + 4 * int64(entry)) * blocks_y()) + block_y())


def begun(base: int, cap: float, t: int, warp: int, low_a: int, low_b: int) -> Any:
    """Scores of position 0 for the two columns, and 1 if this warp starts with them, else LOWEST and 0."""
    score_a = base_two(lds_f32(int32(base + STATE + 32 + int32(8 * t))), float32(1.0), cap)
    score_b = base_two(lds_f32(int32(base + STATE + 36 + int32(8 * t))), float32(1.0), cap)
    here_a, here_b = warp == 0 and low_a < 0, warp == 0 and low_b < 0
    return (score_a if here_a else float32(LOWEST), score_b if here_b else float32(LOWEST),
            float32(1.0) if here_a else float32(0.0), float32(1.0) if here_b else float32(0.0))  # fmt: skip
