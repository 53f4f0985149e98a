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
from engine.backends.cuda.attention_read import element_fp16, halves_fp16, octet_fp16, scale_word, times_scale
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
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = K_MEAN = K_Q4 = K_OCTET = K_OCTETS = 0
V_BLOCK = V_ROW = V_SCALES = V_LIMIT = V_OCTET = V_OCTETS = 0
K_FACTOR = V_FACTOR = 1.0
K_octet: Any = octet_fp16
V_octet: Any = octet_fp16
K_halves: Any = halves_fp16
V_halves: Any = halves_fp16
K_scale: Any = scale_word
V_scale: Any = scale_word
V_times: Any = times_scale
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


def _before(at: int, turn: int) -> Any:
    """What earlier warps have summed."""
    if turn > 0:
        return lds_f32x2(at)
    return float32(0.0), float32(0.0)


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


def _key_scores(
    a0: int, a1: int, a2: int, a3: int, b0: int, b1: int, b2: int, b3: int, one: int, two: int, fragment: int, s0: float, s1: float, s2: float, s3: float
) -> Any:  # fmt: skip
    """Scores s and those of a group's 32 dimensions; a and b are octets of positions g and g + 8, `one` and `two` their scales."""
    a0, a1, a2, a3 = K_halves(a0, a1, a2, a3)
    b0, b1, b2, b3 = K_halves(b0, b1, b2, b3)
    q0, q1, r0, r1 = lds_u32x4(fragment)
    q2, q3, r2, r3 = lds_u32x4(int32(fragment + 512))
    c0, c1, c2, c3 = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
    c0, c1, c2, c3 = mma_halves(a0, b0, a1, b1, r0, r1, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_halves(a2, b2, a3, b3, r2, r3, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_halves(a0, b0, a1, b1, q0, q1, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_halves(a2, b2, a3, b3, q2, q3, c0, c1, c2, c3)
    one_scale, two_scale = half_float(one), half_float(two)
    return s0 + one_scale * c0, s1 + one_scale * c1, s2 + two_scale * c2, s3 + two_scale * c3


def _mean_scores(address: int, fragment: int, s0: float, s1: float, s2: float, s3: float) -> Any:
    """The same of a page's mean, of which this lane has eight dimensions, in row 0 .. 7 of the fragments."""
    f0, f1, f2, f3 = ld_f32x4_now(address)
    f4, f5, f6, f7 = ld_f32x4_now(address + 16)
    m0, m1, m2, m3 = pack_halves(f0, f1), pack_halves(f2, f3), pack_halves(f4, f5), pack_halves(f6, f7)
    q0, q1, r0, r1 = lds_u32x4(fragment)
    q2, q3, r2, r3 = lds_u32x4(int32(fragment + 512))
    none = uint32(0)
    s0, s1, s2, s3 = mma_halves(m0, none, m1, none, r0, r1, s0, s1, s2, s3)
    s0, s1, s2, s3 = mma_halves(m2, none, m3, none, r2, r3, s0, s1, s2, s3)
    s0, s1, s2, s3 = mma_halves(m0, none, m1, none, q0, q1, s0, s1, s2, s3)
    return mma_halves(m2, none, m3, none, q2, q3, s0, s1, s2, s3)


def _key(block: int, octet: int, at: int) -> Any:
    """This lane's eight dimensions of a position's key."""
    octet = octet if octet < K_OCTETS else int32(K_OCTETS - 1)
    return K_octet(block + int64(octet) * K_OCTET + int64(at) * K_ROW)


def _value(block: int, octet: int, at: int) -> Any:
    """This lane's eight dimensions of a position's value."""
    octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
    return V_octet(block + int64(octet) * V_OCTET + int64(at) * V_ROW)


def _value_scale(block: int, octet: int, at: int) -> int:
    """Their scale, 1 where there is none."""
    octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
    return V_scale(block, at, int32(octet >> 2), int32(V_SCALES), int32(GROUPS))


def _scaled_halves(a: int, b: int, c: int, d: int, scale: int) -> Any:
    """An octet of a value, times its scale."""
    a, b, c, d = V_halves(a, b, c, d)
    return V_times(a, b, c, d, scale)


def _outputs(
    a: int, b: int, c: int, d: int, w0: int, w1: int, less_a: float, less_b: float, o0: float, o1: float, o2: float, o3: float
) -> Any:  # fmt: skip
    """Outputs of two dimensions: what they were by the new maximum, and weights times words of values at 2 t, 2 t + 1, 2 t + 8, 2 t + 9."""
    low, high = uint32(0x5410), uint32(0x7632)
    x0, x1, x2, x3 = permute_bytes(a, b, low), permute_bytes(a, b, high), permute_bytes(c, d, low), permute_bytes(c, d, high)
    return mma_halves(x0, x1, x2, x3, w0, w1, o0 * less_a, o1 * less_b, o2 * less_a, o3 * less_b)


def _own(column: int, first: int, count: int, start: int, ratio: int) -> int:
    """The position of a column's row; of columns past the last that of the last."""
    return int32(start + row_of(int32(first + (column if column < count else int32(count - 1))), ratio))


def _unseen(own: int, window: int) -> int:
    """The last position before a row that it does not see, -1 for none."""
    low = int32(own - window)
    return low if window > 0 and low > -1 else int32(-1)


def _place(pages: int, chunk: int) -> int:
    """Which block of the store a chunk of this key/value head lies in."""
    return int64(int32(ld_i32_now(pages + 4 * int64(chunk >> 2)) * blocks_y()) + block_y())


def _softmax(s0: float, s1: float, s2: float, s3: float, factor_a: float, factor_b: float, cap: float, top_a: float, top_b: float, seen: int) -> Any:
    """Of a tile's sums of products, four a lane: the new maxima, what earlier sums are worth by them, and the weights. `seen`: a bit each."""
    one, two, four, eight = (seen & 1) != 0, (seen & 2) != 0, (seen & 4) != 0, (seen & 8) != 0
    low = float32(LOWEST)
    s0, s1 = _scaled(s0, factor_a, cap) if one else low, _scaled(s1, factor_b, cap) if two else low
    s2, s3 = _scaled(s2, factor_a, cap) if four else low, _scaled(s3, factor_b, cap) if eight else low
    new_a, new_b = maximum(top_a, rows_maximum(maximum(s0, s2))), maximum(top_b, rows_maximum(maximum(s1, s3)))
    nothing = float32(0.0)
    s0, s1 = exp2(s0 - new_a) if one else nothing, exp2(s1 - new_b) if two else nothing
    s2, s3 = exp2(s2 - new_a) if four else nothing, exp2(s3 - new_b) if eight else nothing
    return new_a, new_b, exp2(top_a - new_a), exp2(top_b - new_b), s0, s1, s2, s3


def _sees(p0: int, low_a: int, own_a: int, low_b: int, own_b: int) -> int:
    """Bits of positions p0 and p0 + 8 for two columns."""
    p1 = int32(p0 + 8)
    one, two = int32(1) if p0 > low_a and p0 <= own_a else int32(0), int32(2) if p0 > low_b and p0 <= own_b else int32(0)
    four, eight = int32(4) if p1 > low_a and p1 <= own_a else int32(0), int32(8) if p1 > low_b and p1 <= own_b else int32(0)
    return int32(int32(one | two) | int32(four | eight))


def _begun(base: int, cap: float, t: int, warp: int, low_a: int, low_b: int) -> Any:
    """Scores of position 0, which the first warp begins with, and whether the two columns do."""
    score_a = _scaled(lds_f32(int32(base + STATE + 32 + int32(8 * t))), float32(1.0), cap)
    score_b = _scaled(lds_f32(int32(base + STATE + 36 + int32(8 * t))), float32(1.0), cap)
    here_a, here_b = warp == 0 and low_a < 0, warp == 0 and low_b < 0
    return (score_a if here_a else float32(LOWEST), score_b if here_b else float32(LOWEST),
            float32(1.0) if here_a else float32(0.0), float32(1.0) if here_b else float32(0.0))  # fmt: skip


def _attend(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, position: int, pages: int,
    rows: int, ratio: int, scale: float, cap: float, window: int,
) -> None:  # fmt: skip
    """Block (split, key/value head, columns): maxima, sums and outputs of the split's positions, for each of the columns."""
    wait_for_others()
    base, start = shared(SHARED), ld_i32_now(position)
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    g, t = int32(lane >> 2), int32(lane & 3)
    first = int32(block_z() * COLUMNS)
    count = int32(min(int32(int32(rows * ratio) - first), int32(COLUMNS)))
    last = int32(start + int32(rows - 1))
    lowest = _unseen(_own(int32(0), first, count, start, ratio), window)
    chunk = int32(int32(lowest + 1) >> 6)
    chunk = int32(chunk + int32(int32(block_x() - chunk) & int32(blocks_x() - 1)))
    end = int32(_own(int32(COLUMNS), first, count, start, ratio) >> 6)
    if chunk <= end:
        begins = int32(1) if chunk == 0 and lowest < 0 else int32(0)
        place = _place(pages, chunk)
        _stage(base, q, q_stride, first, count, ratio, scale, keys + place * K_BLOCK, begins)
        barrier()
        _fragments(base)
        own_a, own_b = _own(int32(2 * t), first, count, start, ratio), _own(int32(int32(2 * t) + 1), first, count, start, ratio)
        low_a, low_b = _unseen(own_a, window), _unseen(own_b, window)
        factor_a, factor_b = lds_f32x2(int32(base + STATE + int32(8 * t)))
        top_a, top_b, sum_a, sum_b = float32(LOWEST), float32(LOWEST), float32(0.0), float32(0.0)
        out = registers(float32(0.0), 16 * VBLOCKS)
        if KEPT_FIRST == 1:
            if begins != 0:
                top_a, top_b, one, two = _begun(base, cap, t, warp, low_a, low_b)
                sum_a, sum_b = one if g == 0 else float32(0.0), two if g == 0 else float32(0.0)
                for m in static(range(8 * VBLOCKS)):
                    value = _first_value(values + place * V_BLOCK, int32(int32(8 * g) + 64 * (m // 8) + m % 8))
                    out[4 * (m // 2) + 2 * (m % 2)] = value if one > float32(0.0) else float32(0.0)
                    out[4 * (m // 2) + 2 * (m % 2) + 1] = value if two > float32(0.0) else float32(0.0)
            low_a, low_b = int32(max(low_a, int32(0))), int32(max(low_b, int32(0)))
        barrier()
        kw = registers(uint32(0), 8 * KP)
        vw = registers(uint32(0), 16 * VP)
        ks = registers(uint32(0), 2 * KP)
        vs = registers(uint32(0), 4 * VP)
        s = registers(float32(0.0), 4)
        means = registers(float32(0.0), 4)
        v = registers(uint32(0), 16)
        while chunk <= end:
            p0, place = int32(int32(int32(chunk << 6) + int32(warp << 4)) + g), _place(pages, chunk)
            key_block, value_block = keys + place * K_BLOCK, values + place * V_BLOCK
            # Positions past the step's last were perhaps never written: the last stands for them, at a weight of 0.
            at0, at1 = int32(min(p0, last) & 255), int32(min(int32(p0 + 8), last) & 255)
            pair = int32(int32(p0 - g) + int32(2 * t))
            for i in static(range(4)):
                s[i], means[i] = float32(0.0), float32(0.0)
            for h in static(range((GROUPS + KP - 1) // KP)):
                for i in static(range(min(KP, GROUPS - h * KP))):
                    kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3] = _key(key_block, int32(t + 4 * (h * KP + i)), at0)
                    kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7] = _key(key_block, int32(t + 4 * (h * KP + i)), at1)
                    ks[2 * i] = K_scale(key_block, at0, int32(h * KP + i), int32(K_SCALES), int32(GROUPS))
                    ks[2 * i + 1] = K_scale(key_block, at1, int32(h * KP + i), int32(K_SCALES), int32(GROUPS))
                if h == 0 and VP == VBLOCKS:
                    for n in static(range(4)):
                        at = int32(min(int32(pair + (n & 1) + 8 * (n >> 1)), last) & 255)
                        for j in static(range(min(VP, VBLOCKS - h * VP))):
                            octet = int32(g + 8 * (h * VP + j))
                            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3] = _value(value_block, octet, at)
                            vs[4 * j + n] = _value_scale(value_block, octet, at)
                for i in static(range(min(KP, GROUPS - h * KP))):
                    fragment = int32(base + FRAGMENTS + int32(lane << 4) + 1024 * (h * KP + i))
                    s[0], s[1], s[2], s[3] = _key_scores(
                        kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3], kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7],
                        ks[2 * i], ks[2 * i + 1], fragment, s[0], s[1], s[2], s[3],
                    )  # fmt: skip
                    if K_Q4 == 1:
                        mean = key_block + K_MEAN + 32 * int64(int32(t + 4 * (h * KP + i)))
                        means[0], means[1], means[2], means[3] = _mean_scores(mean, fragment, means[0], means[1], means[2], means[3])
            if K_Q4 == 1:
                # All of rows 0 .. 7 are the mean; the first sixteen positions have none, or any.
                if p0 > 15:
                    s[0], s[1], s[2], s[3] = s[0] + means[0], s[1] + means[1], s[2] + means[0], s[3] + means[1]
            seen = _sees(p0, low_a, own_a, low_b, own_b)
            top_a, top_b, less_a, less_b, s[0], s[1], s[2], s[3] = _softmax(
                s[0], s[1], s[2], s[3], factor_a, factor_b, cap, top_a, top_b, seen
            )
            sum_a, sum_b = sum_a * less_a + (s[0] + s[2]), sum_b * less_b + (s[1] + s[3])
            w0, w1 = transpose_halves(pack_halves(s[0], s[1])), transpose_halves(pack_halves(s[2], s[3]))
            for h in static(range((VBLOCKS + VP - 1) // VP)):
                if VP < VBLOCKS:
                    for n in static(range(4)):
                        at = int32(min(int32(pair + (n & 1) + 8 * (n >> 1)), last) & 255)
                        for j in static(range(min(VP, VBLOCKS - h * VP))):
                            octet = int32(g + 8 * (h * VP + j))
                            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3] = _value(value_block, octet, at)
                            vs[4 * j + n] = _value_scale(value_block, octet, at)
                for j in static(range(min(VP, VBLOCKS - h * VP))):
                    for n in static(range(4)):
                        v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3] = _scaled_halves(
                            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3], vs[4 * j + n]
                        )
                    for i in static(range(16 * (h * VP + j), 16 * (h * VP + j) + 16, 4)):
                        out[i], out[i + 1], out[i + 2], out[i + 3] = _outputs(
                            v[i % 16 // 4], v[4 + i % 16 // 4], v[8 + i % 16 // 4], v[12 + i % 16 // 4], w0, w1, less_a, less_b,
                            out[i], out[i + 1], out[i + 2], out[i + 3],
                        )  # fmt: skip
            chunk = int32(chunk + blocks_x())
        barrier()
        _told(base, top_a, top_b, sum_a, sum_b)
        less_a, less_b = _share(base, int32(2 * t), warp), _share(base, int32(int32(2 * t) + 1), warp)
        turn = int32(0)
        while turn < WARPS:
            if turn == warp:
                for m in static(range(8 * VBLOCKS)):
                    at = int32(base + int32(32 * g) + int32(8 * t) + 256 * m)
                    one, two = _before(at, turn)
                    one, two = one + out[4 * (m // 2) + 2 * (m % 2)] * less_a, two + out[4 * (m // 2) + 2 * (m % 2) + 1] * less_b
                    sts_f32x2(at, one, two)
            barrier()
            turn = int32(turn + 1)
        _write(base, partial, partial_stride, first, count, ratio)
