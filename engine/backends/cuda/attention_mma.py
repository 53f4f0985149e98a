"""Attention of few rows by tensor cores: scores and weighted values of eight columns at once, 16 positions a warp and turn.

Scores are S^T = K Q^T: the fragments of a tile of 16 positions by 16 dimensions are what lanes load from the store, eight dimensions at once;
queries, halved to a number of order one and split in two fp16 whose sum has 22 bits, are the columns. Weights, rounded to fp16, are transposed
in registers and take O^T = V^T P. Lane (g, t) = (lane / 4, lane % 4) has, of scores, positions g and g + 8 and columns 2 t and 2 t + 1, and of
outputs the dimensions 64 j + 8 g + 2 i and the next for these columns, in accumulators 4 (4 j + i) .. + 3. Softmax runs along with a running
maximum in base 2 (arXiv 2205.14135); a first key or value that q4 keeps whole is where the sums begin.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.attention_parts import (
    HEAD,
    LOG2_E,
    LOWEST,
    capped,
    row_of,
    rows_maximum,
    rows_sum,
    turned_lane,
    warp_maximum,
    warp_sum,
)
from engine.backends.cuda.attention_read import element_fp16, halves_fp16, octet_fp16, scale_word
from engine.backends.cuda.ptx import (
    absolute,
    barrier,
    bits_float,
    block_x,
    block_y,
    block_z,
    blocks_x,
    blocks_y,
    exp2,
    float_bits,
    half_float,
    high_half_float,
    ld_f32_now,
    ld_f32x4_now,
    ld_i32_now,
    lds_f32,
    lds_f32x2,
    lds_f32x4,
    lds_u32x4,
    maximum,
    mma_halves,
    multiply_halves,
    pack_halves,
    permute_bytes,
    registers,
    shared,
    static,
    st_f32,
    st_f32x2,
    sts_f32,
    sts_f32x2,
    sts_u32x4,
    thread,
    transpose_halves,
    wait_for_others,
)
from engine.backends.cuda.words import float32, int32, int64, uint32

WARPS = 4
THREADS = 32 * WARPS
COLUMNS = 8

D, GROUPS, DP = 64, 2, 64
TURNED = 0
KEPT_FIRST = 0
"""1 where q4 keeps a first key or value whole."""
VBLOCKS, KP, VP = 1, 2, 1
"""Blocks of 64 dimensions; groups of keys and blocks of values that are loaded at once."""
FRAGMENTS, STATE, SHARED = 0, 0, 0
"""Offsets in shared memory: of queries as fragments, of what warps tell each other; float32 queries and outputs begin at 0."""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = K_MEAN = K_SCALED = K_Q4 = K_OCTET = K_OCTETS = 0
V_BLOCK = V_ROW = V_SCALES = V_LIMIT = V_SCALED = V_OCTET = V_OCTETS = 0
K_FACTOR = V_FACTOR = 1.0
K_octet: Any = octet_fp16
V_octet: Any = octet_fp16
K_halves: Any = halves_fp16
V_halves: Any = halves_fp16
K_first: Any = element_fp16
V_first: Any = element_fp16


def _first_key(block: int, dim: int) -> float:
    """Of position 0, turned where keys are; dimensions past the format's are 0."""
    if dim < K_LIMIT:
        return K_first(block, int32(0), dim, int32(K_ROW), int32(K_SCALES), int32(GROUPS))
    return float32(0.0)


def _first_value(block: int, dim: int) -> float:
    """Of position 0, turned where values are, without their factor; dimensions past the format's are 0."""
    if dim < V_LIMIT:
        return V_first(block, int32(0), dim, int32(V_ROW), int32(V_SCALES), int32(GROUPS)) * float32(1.0 / V_FACTOR)
    return float32(0.0)


def _stage(base: int, q: int, q_stride: int, first: int, count: int, ratio: int, scale: float, block: int, begins: int) -> None:
    """Queries, turned, times a power of two each that brings them to order one, into shared memory; what scores lack of them goes to
    STATE (8 numbers), and with `begins` scores of position 0 behind it.
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
                x[i] = ld_f32_now(source + 4 * int64(dim))
            if TURNED == 1:
                x[i] = turned_lane(x[i], lane)
            top = maximum(top, absolute(x[i]))
        exponent = uint32(uint32(float_bits(warp_maximum(top))) >> uint32(23))
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
        if KEPT_FIRST == 1:
            if begins != 0:
                total = float32(0.0)
                for i in static(range(GROUPS)):
                    total = total + x[i] * _first_key(block, int32(lane + 32 * i))
                total = warp_sum(total)
                if lane == 0:
                    sts_f32(int32(base + STATE + 32 + int32(4 * column)), total * factor * float32(1.0 / K_FACTOR))


def _fragments(base: int) -> None:
    """Staged queries as the columns of `mma_halves`: for each 16 dimensions two words of what fp16 has of them, two of what it lacks."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    for k in static(range((2 * GROUPS + WARPS - 1) // WARPS)):
        step = int32(warp + WARPS * k)
        if step < 2 * GROUPS:
            dim = int32(int32(int32(step >> 1) << 5) + int32(int32(int32(lane & 3) << 3) + int32(int32(step & 1) << 2)))
            a, b, c, d = lds_f32x4(int32(base + int32(4 * int32(int32(int32(lane >> 2) * DP) + dim))))
            low, high = pack_halves(a, b), pack_halves(c, d)
            low_rest = pack_halves(a - half_float(low), b - high_half_float(low))
            high_rest = pack_halves(c - half_float(high), d - high_half_float(high))
            at = int32(base + FRAGMENTS + int32(16 * int32(int32(step << 5) + lane)))
            sts_u32x4(at, low, high, low_rest, high_rest)


def _told(base: int, top_a: float, top_b: float, sum_a: float, sum_b: float) -> None:
    """Tell the other warps this one's maxima and sums, eight of each, once nobody reads fragments any more."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    sum_a, sum_b = rows_sum(sum_a), rows_sum(sum_b)
    if lane < 4:
        at = int32(base + STATE + int32(64 * warp) + int32(8 * lane))
        sts_f32(at, top_a)
        sts_f32(int32(at + 4), top_b)
        sts_f32(int32(at + 32), sum_a)
        sts_f32(int32(at + 36), sum_b)
    barrier()


def _share(base: int, column: int, warp: int) -> float:
    """What a warp's sums of a column are worth beside the other warps'."""
    at = int32(base + STATE + int32(4 * column))
    top = float32(LOWEST)
    for i in static(range(WARPS)):
        top = maximum(top, lds_f32(int32(at + 64 * i)))
    return exp2(lds_f32(int32(at + int32(64 * warp))) - top)


def _write(base: int, partial: int, partial_stride: int, first: int, count: int, ratio: int) -> None:
    """The block's maxima, sums and outputs, joined, to the partial results."""
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
            at = int32(base + int32(256 * tile) + int32(4 * int32(int32(int32(int32(dim >> 3) & 7) << 3) + i)))
            st_f32(target + 4 * HEAD + 4 * int64(dim), lds_f32(at) * float32(V_FACTOR))
            dim = int32(dim + THREADS)
        i = int32(i + 1)


def _scaled(score: float, factor: float, cap: float) -> float:
    """A sum of products as a score in base 2."""
    if cap > float32(0.0):
        return capped(score * factor, cap)
    return score * (factor * float32(LOG2_E))


def _attend(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, position: int, pages: int,
    rows: int, ratio: int, scale: float, cap: float, window: int,
) -> None:  # fmt: skip
    """Block (split, key/value head, columns): maxima, sums and outputs of the split's positions, for each of the columns."""
    wait_for_others()
    base = shared(SHARED)
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    g, t = int32(lane >> 2), int32(lane & 3)
    first = int32(block_z() * COLUMNS)
    count = int32(int32(rows * ratio) - first)
    count = count if count < COLUMNS else int32(COLUMNS)
    start = ld_i32_now(position)
    last = int32(start + int32(rows - 1))
    lowest = int32(int32(start + row_of(first, ratio)) - window)  # what the first of the columns no longer sees
    lowest = lowest if window > 0 and lowest > -1 else int32(-1)
    chunk = int32(int32(lowest + 1) >> 6)
    chunk = int32(chunk + int32(int32(block_x() - chunk) & int32(blocks_x() - 1)))
    end = int32(int32(start + row_of(int32(first + int32(count - 1)), ratio)) >> 6)
    if chunk <= end:
        begins = int32(1) if chunk == 0 and lowest < 0 else int32(0)
        page = ld_i32_now(pages + 4 * int64(chunk >> 2))
        place = int64(int32(page * blocks_y()) + block_y())
        key_block, value_block = keys + place * K_BLOCK, values + place * V_BLOCK
        _stage(base, q, q_stride, first, count, ratio, scale, key_block, begins)
        barrier()
        _fragments(base)
        # A column's positions: `low` it no longer sees, `own` is the last that it sees.
        one, two = int32(2 * t), int32(int32(2 * t) + 1)
        own_a = int32(start + row_of(int32(first + (one if one < count else int32(count - 1))), ratio))
        own_b = int32(start + row_of(int32(first + (two if two < count else int32(count - 1))), ratio))
        low_a, low_b = int32(own_a - window), int32(own_b - window)
        low_a = low_a if window > 0 and low_a > -1 else int32(-1)
        low_b = low_b if window > 0 and low_b > -1 else int32(-1)
        factor_a, factor_b = lds_f32(int32(base + STATE + int32(8 * t))), lds_f32(int32(base + STATE + int32(8 * t) + 4))
        top_a, top_b, sum_a, sum_b = float32(LOWEST), float32(LOWEST), float32(0.0), float32(0.0)
        out = registers(float32(0.0), 16 * VBLOCKS)
        if KEPT_FIRST == 1:
            if begins != 0:
                here_a = warp == 0 and low_a < 0
                here_b = warp == 0 and low_b < 0
                score_a = _scaled(lds_f32(int32(base + STATE + 32 + int32(8 * t))), float32(1.0), cap)
                score_b = _scaled(lds_f32(int32(base + STATE + 32 + int32(8 * t) + 4)), float32(1.0), cap)
                top_a, top_b = score_a if here_a else top_a, score_b if here_b else top_b
                sum_a = float32(1.0) if here_a and g == 0 else sum_a
                sum_b = float32(1.0) if here_b and g == 0 else sum_b
                for m in static(range(8 * VBLOCKS)):
                    value = _first_value(value_block, int32(int32(8 * g) + 64 * (m // 8) + m % 8))
                    out[4 * (m // 2) + 2 * (m % 2)] = value if here_a else float32(0.0)
                    out[4 * (m // 2) + 2 * (m % 2) + 1] = value if here_b else float32(0.0)
            low_a, low_b = low_a if low_a > 0 else int32(0), low_b if low_b > 0 else int32(0)
        barrier()
        kw = registers(uint32(0), 8 * KP)
        vw = registers(uint32(0), 16 * VP)
        ks = registers(uint32(0), 2 * KP)
        vs = registers(uint32(0), 4 * VP)
        score = registers(float32(0.0), 4)
        part = registers(float32(0.0), 4)
        weight = registers(uint32(0), 16)
        while chunk <= end:
            tile = int32(int32(chunk << 6) + int32(warp << 4))
            page = ld_i32_now(pages + 4 * int64(chunk >> 2))
            place = int64(int32(page * blocks_y()) + block_y())
            key_block, value_block = keys + place * K_BLOCK, values + place * V_BLOCK
            # Positions past the step's last were perhaps never written: the last stands for them, at a weight of 0.
            p0, p1 = int32(tile + g), int32(int32(tile + g) + 8)
            at0, at1 = int32((p0 if p0 < last else last) & 255), int32((p1 if p1 < last else last) & 255)
            for i in static(range(4)):
                score[i], part[i] = float32(0.0), float32(0.0)
            for h in static(range((GROUPS + KP - 1) // KP)):
                for i in static(range(min(KP, GROUPS - h * KP))):
                    octet = int32(t + 4 * (h * KP + i))
                    if 4 * (h * KP + i) + 4 > K_OCTETS:
                        octet = octet if octet < K_OCTETS else int32(K_OCTETS - 1)
                    offset = key_block + int64(octet) * K_OCTET
                    kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3] = K_octet(offset + int64(at0) * K_ROW)
                    kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7] = K_octet(offset + int64(at1) * K_ROW)
                    if K_SCALED == 1:
                        ks[2 * i] = scale_word(key_block, at0, int32(h * KP + i), K_SCALES, GROUPS)
                        ks[2 * i + 1] = scale_word(key_block, at1, int32(h * KP + i), K_SCALES, GROUPS)
                if h == 0 and VP == VBLOCKS:
                    for n in static(range(4)):
                        p = int32(int32(tile + 2 * t) + (n & 1) + 8 * (n >> 1))
                        at = int32((p if p < last else last) & 255)
                        for j in static(range(VP)):
                            octet = int32(g + 8 * j)
                            if 8 * j + 8 > V_OCTETS:
                                octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
                            (vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3]) = V_octet(
                                value_block + int64(octet) * V_OCTET + int64(at) * V_ROW
                            )
                            if V_SCALED == 1:
                                vs[4 * j + n] = scale_word(value_block, at, int32(octet >> 2), V_SCALES, GROUPS)
                for i in static(range(min(KP, GROUPS - h * KP))):
                    a0, a1, a2, a3 = K_halves(kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3])
                    b0, b1, b2, b3 = K_halves(kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7])
                    fragment = int32(base + FRAGMENTS + int32(lane << 4) + 1024 * (h * KP + i))
                    q0, q1, r0, r1 = lds_u32x4(fragment)
                    q2, q3, r2, r3 = lds_u32x4(int32(fragment + 512))
                    if K_SCALED == 1:
                        zero = float32(0.0)
                        s0, s1, s2, s3 = mma_halves(a0, b0, a1, b1, r0, r1, zero, zero, zero, zero)
                    else:
                        s0, s1, s2, s3 = mma_halves(a0, b0, a1, b1, r0, r1, score[0], score[1], score[2], score[3])
                    s0, s1, s2, s3 = mma_halves(a2, b2, a3, b3, r2, r3, s0, s1, s2, s3)
                    s0, s1, s2, s3 = mma_halves(a0, b0, a1, b1, q0, q1, s0, s1, s2, s3)
                    s0, s1, s2, s3 = mma_halves(a2, b2, a3, b3, q2, q3, s0, s1, s2, s3)
                    if K_SCALED == 1:
                        scale0, scale1 = half_float(ks[2 * i]), half_float(ks[2 * i + 1])
                        score[0], score[1] = score[0] + scale0 * s0, score[1] + scale0 * s1
                        score[2], score[3] = score[2] + scale1 * s2, score[3] + scale1 * s3
                    else:
                        score[0], score[1], score[2], score[3] = s0, s1, s2, s3
                    if K_Q4 == 1:
                        mean = key_block + K_MEAN + 32 * int64(int32(t + 4 * (h * KP + i)))
                        f0, f1, f2, f3 = ld_f32x4_now(mean)
                        f4, f5, f6, f7 = ld_f32x4_now(mean + 16)
                        none = uint32(0)
                        m0, m1, m2, m3 = pack_halves(f0, f1), pack_halves(f2, f3), pack_halves(f4, f5), pack_halves(f6, f7)
                        s0, s1, s2, s3 = mma_halves(m0, none, m1, none, r0, r1, part[0], part[1], part[2], part[3])
                        s0, s1, s2, s3 = mma_halves(m2, none, m3, none, r2, r3, s0, s1, s2, s3)
                        s0, s1, s2, s3 = mma_halves(m0, none, m1, none, q0, q1, s0, s1, s2, s3)
                        part[0], part[1], part[2], part[3] = mma_halves(m2, none, m3, none, q2, q3, s0, s1, s2, s3)
            if K_Q4 == 1:
                # All sixteen rows of the first product are the mean; the first sixteen positions have none, or any.
                mean_a, mean_b = part[0] if tile > 0 else float32(0.0), part[1] if tile > 0 else float32(0.0)
                score[0], score[1] = score[0] + mean_a, score[1] + mean_b
                score[2], score[3] = score[2] + mean_a, score[3] + mean_b
            see0, see1 = p0 > low_a and p0 <= own_a, p0 > low_b and p0 <= own_b
            see2, see3 = p1 > low_a and p1 <= own_a, p1 > low_b and p1 <= own_b
            x0 = _scaled(score[0], factor_a, cap) if see0 else float32(LOWEST)
            x1 = _scaled(score[1], factor_b, cap) if see1 else float32(LOWEST)
            x2 = _scaled(score[2], factor_a, cap) if see2 else float32(LOWEST)
            x3 = _scaled(score[3], factor_b, cap) if see3 else float32(LOWEST)
            new_a, new_b = maximum(top_a, rows_maximum(maximum(x0, x2))), maximum(top_b, rows_maximum(maximum(x1, x3)))
            less_a, less_b = exp2(top_a - new_a), exp2(top_b - new_b)
            x0 = exp2(x0 - new_a) if see0 else float32(0.0)
            x1 = exp2(x1 - new_b) if see1 else float32(0.0)
            x2 = exp2(x2 - new_a) if see2 else float32(0.0)
            x3 = exp2(x3 - new_b) if see3 else float32(0.0)
            sum_a, sum_b = sum_a * less_a + (x0 + x2), sum_b * less_b + (x1 + x3)
            top_a, top_b = new_a, new_b
            w0, w1 = transpose_halves(pack_halves(x0, x1)), transpose_halves(pack_halves(x2, x3))
            for h in static(range((VBLOCKS + VP - 1) // VP)):
                if VP < VBLOCKS:
                    for n in static(range(4)):
                        p = int32(int32(tile + 2 * t) + (n & 1) + 8 * (n >> 1))
                        at = int32((p if p < last else last) & 255)
                        for j in static(range(min(VP, VBLOCKS - h * VP))):
                            octet = int32(g + 8 * (h * VP + j))
                            if 8 * (h * VP + j) + 8 > V_OCTETS:
                                octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
                            (vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3]) = V_octet(
                                value_block + int64(octet) * V_OCTET + int64(at) * V_ROW
                            )
                            if V_SCALED == 1:
                                vs[4 * j + n] = scale_word(value_block, at, int32(octet >> 2), V_SCALES, GROUPS)
                for j in static(range(min(VP, VBLOCKS - h * VP))):
                    for n in static(range(4)):
                        weight[4 * n], weight[4 * n + 1], weight[4 * n + 2], weight[4 * n + 3] = V_halves(
                            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3]
                        )
                        if V_SCALED == 1:
                            twice = permute_bytes(vs[4 * j + n], vs[4 * j + n], uint32(0x1010))
                            for i in static(range(4)):
                                weight[4 * n + i] = multiply_halves(weight[4 * n + i], twice)
                    for i in static(range(4)):
                        a0 = permute_bytes(weight[i], weight[4 + i], uint32(0x5410))
                        a1 = permute_bytes(weight[i], weight[4 + i], uint32(0x7632))
                        a2 = permute_bytes(weight[8 + i], weight[12 + i], uint32(0x5410))
                        a3 = permute_bytes(weight[8 + i], weight[12 + i], uint32(0x7632))
                        (out[16 * (h * VP + j) + 4 * i], out[16 * (h * VP + j) + 4 * i + 1],
                         out[16 * (h * VP + j) + 4 * i + 2], out[16 * (h * VP + j) + 4 * i + 3]) = mma_halves(
                            a0, a1, a2, a3, w0, w1,
                            out[16 * (h * VP + j) + 4 * i] * less_a, out[16 * (h * VP + j) + 4 * i + 1] * less_b,
                            out[16 * (h * VP + j) + 4 * i + 2] * less_a, out[16 * (h * VP + j) + 4 * i + 3] * less_b,
                        )  # fmt: skip
            chunk = int32(chunk + blocks_x())
        barrier()
        _told(base, top_a, top_b, sum_a, sum_b)
        less_a, less_b = _share(base, one, warp), _share(base, two, warp)
        turn = int32(0)
        while turn < WARPS:
            if turn == warp:
                for m in static(range(8 * VBLOCKS)):
                    at = int32(base + int32(32 * g) + int32(8 * t) + 256 * m)
                    before_a, before_b = float32(0.0), float32(0.0)
                    if turn > 0:
                        before_a, before_b = lds_f32x2(at)
                    one_out = out[4 * (m // 2) + 2 * (m % 2)] * less_a
                    two_out = out[4 * (m // 2) + 2 * (m % 2) + 1] * less_b
                    sts_f32x2(at, before_a + one_out, before_b + two_out)
            barrier()
            turn = int32(turn + 1)
        _write(base, partial, partial_stride, first, count, ratio)
