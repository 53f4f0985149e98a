"""Small-batch attention with tensor cores: eight columns, 16 positions per warp and iteration.

Scores are S^T = K Q^T. Each lane loads eight dimensions at once, and a tile of 16 positions by 16 dimensions
makes the fragments of operand a. Queries, scaled to order one and split into two fp16 with 22 bits together,
are the columns. Weights, rounded to fp16, are transposed in registers for O^T = V^T P. Of scores, lane (g, t)
= (lane / 4, lane % 4) holds positions g and g + 8 and columns 2 t and 2 t + 1; of outputs it holds the
dimensions 64 j + 8 g + 2 i and the next for these columns, in accumulators 4 (4 j + i) .. + 3. Softmax keeps
a running maximum in base 2 (arXiv 2205.14135). A first key or value that q4 stores whole starts the sums.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    block_z,
    blocks_x,
    exp2,
    half_float,
    ld_f32x4,
    ld_i32,
    lds_f32x2,
    lds_u32x4,
    maximum,
    mma_fp16,
    pack_fp16,
    permute_bytes,
    registers,
    shared,
    static,
    sts_f32x2,
    thread,
    transpose_b16,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.attention.kv_read import (
    element_fp16,
    fp16x2_of_fp16,
    octet_fp16,
    scale_word,
    times_scale,
)
from engine.backends.cuda.kernels.attention.parts import (
    LOWEST,
    leaning,
    rows_maximum,
    run_columns,
    sees,
    slope_of,
    unseen,
)
from engine.backends.cuda.kernels.attention.stage import (
    COLUMNS,
    WARPS,
    base_two,
    before,
    begun,
    block_of,
    first_value,
    fragments,
    own_index,
    own_position,
    share,
    share_maxima,
    stage,
    write_partial,
)

D, GROUPS, DP = 64, 2, 64
HADAMARD = 0
ALIBI = CHUNKED = 0
"""See `parts`."""
SEVERAL = 0
"""1 for steps over several sequences; otherwise `runs` and `row_shift` are not used."""
KEPT_FIRST = 0
"""1 if q4 stores a first key or value whole."""
VBLOCKS, KP, VP = 1, 2, 1
"""Blocks of 64 dimensions; groups of keys and blocks of values that are loaded at once."""
FRAGMENTS, STATE, SHARED = 0, 0, 0
"""Offsets in shared memory: query fragments, the warps' exchange. Queries, later outputs, are at 0."""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = K_MEAN = K_Q4 = K_OCTET = K_OCTETS = 0
V_BLOCK = V_ROW = V_SCALES = V_LIMIT = V_OCTET = V_OCTETS = 0
K_FACTOR = V_FACTOR = 1.0
K_octet: Any = octet_fp16
V_octet: Any = octet_fp16
K_fp16x2: Any = fp16x2_of_fp16
V_fp16x2: Any = fp16x2_of_fp16
K_scale: Any = scale_word
V_scale: Any = scale_word
V_times: Any = times_scale
K_first: Any = element_fp16
V_first: Any = element_fp16


def _key_scores(
    a0: int, a1: int, a2: int, a3: int, b0: int, b1: int, b2: int, b3: int, one: int, two: int, fragment: int,
    s0: float, s1: float, s2: float, s3: float,
) -> Any:  # fmt: skip
    """Scores s plus those of a group's 32 dimensions.

    a and b are octets of positions g and g + 8, `one` and `two` their scales; `fragment` is
    the address of the queries' fragments.
    """
    a0, a1, a2, a3 = K_fp16x2(a0, a1, a2, a3)
    b0, b1, b2, b3 = K_fp16x2(b0, b1, b2, b3)
    q0, q1, r0, r1 = lds_u32x4(fragment)
    q2, q3, r2, r3 = lds_u32x4(int32(fragment + 512))
    c0, c1, c2, c3 = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
    c0, c1, c2, c3 = mma_fp16(a0, b0, a1, b1, r0, r1, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_fp16(a2, b2, a3, b3, r2, r3, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_fp16(a0, b0, a1, b1, q0, q1, c0, c1, c2, c3)
    c0, c1, c2, c3 = mma_fp16(a2, b2, a3, b3, q2, q3, c0, c1, c2, c3)
    one_scale, two_scale = half_float(one), half_float(two)
    return s0 + one_scale * c0, s1 + one_scale * c1, s2 + two_scale * c2, s3 + two_scale * c3


def _mean_scores(address: int, fragment: int, s0: float, s1: float, s2: float, s3: float) -> Any:
    """Scores s plus those of a page's mean, of which this lane loads eight dimensions, in rows 0 .. 7."""
    f0, f1, f2, f3 = ld_f32x4(address)
    f4, f5, f6, f7 = ld_f32x4(address + 16)
    m0, m1, m2, m3 = pack_fp16(f0, f1), pack_fp16(f2, f3), pack_fp16(f4, f5), pack_fp16(f6, f7)
    q0, q1, r0, r1 = lds_u32x4(fragment)
    q2, q3, r2, r3 = lds_u32x4(int32(fragment + 512))
    none = uint32(0)
    s0, s1, s2, s3 = mma_fp16(m0, none, m1, none, r0, r1, s0, s1, s2, s3)
    s0, s1, s2, s3 = mma_fp16(m2, none, m3, none, r2, r3, s0, s1, s2, s3)
    s0, s1, s2, s3 = mma_fp16(m0, none, m1, none, q0, q1, s0, s1, s2, s3)
    return mma_fp16(m2, none, m3, none, q2, q3, s0, s1, s2, s3)


def _key(block: int, octet: int, at: int) -> Any:
    """This lane's eight dimensions of a position's key."""
    octet = octet if octet < K_OCTETS else int32(K_OCTETS - 1)
    return K_octet(block + int64(octet) * K_OCTET + int64(at) * K_ROW)


def _value(block: int, octet: int, at: int) -> Any:
    """This lane's eight dimensions of a position's value."""
    octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
    return V_octet(block + int64(octet) * V_OCTET + int64(at) * V_ROW)


def _value_scale(block: int, octet: int, at: int) -> int:
    """The scale of these eight dimensions, 1 if the format has none."""
    octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
    return V_scale(block, at, int32(octet >> 2), int32(V_SCALES), int32(GROUPS))


def _scaled_fp16x2(a: int, b: int, c: int, d: int, scale: int) -> Any:
    """An octet of a value, times its scale."""
    a, b, c, d = V_fp16x2(a, b, c, d)
    return V_times(a, b, c, d, scale)


def _outputs(
    a: int, b: int, c: int, d: int, w0: int, w1: int, less_a: float, less_b: float, o0: float, o1: float,
    o2: float, o3: float
) -> Any:  # fmt: skip
    """Outputs of two dimensions: o0 .. o3 scaled to the new maximum, plus weights times values.

    a, b, c, d are words of values at positions 2 t, 2 t + 1, 2 t + 8, 2 t + 9; w0, w1 are the weights.
    """
    low, high = uint32(0x5410), uint32(0x7632)
    x0, x1 = permute_bytes(a, b, low), permute_bytes(a, b, high)
    x2, x3 = permute_bytes(c, d, low), permute_bytes(c, d, high)
    return mma_fp16(x0, x1, x2, x3, w0, w1, o0 * less_a, o1 * less_b, o2 * less_a, o3 * less_b)


def _softmax(
    s0: float, s1: float, s2: float, s3: float, factor_a: float, factor_b: float, cap: float, top_a: float,
    top_b: float, seen: int, p0: int, own_a: int, own_b: int, slope_a: float, rounded_a: float,
    slope_b: float, rounded_b: float,
) -> Any:  # fmt: skip
    """New maxima, the factors of earlier sums, and the weights of a tile's four scores of this lane.

    s0 .. s3 are sums of products; `seen` has a bit for each that is visible. The rest is ALiBi's: the first
    position, and the own position, slope and factor (`slope_of`) of both columns.
    """
    one, two, four, eight = (seen & 1) != 0, (seen & 2) != 0, (seen & 4) != 0, (seen & 8) != 0
    low = float32(LOWEST)
    p1 = int32(p0 + 8)
    s0 = leaning(base_two(s0, factor_a, cap), slope_a, rounded_a, p0, own_a) if one else low
    s1 = leaning(base_two(s1, factor_b, cap), slope_b, rounded_b, p0, own_b) if two else low
    s2 = leaning(base_two(s2, factor_a, cap), slope_a, rounded_a, p1, own_a) if four else low
    s3 = leaning(base_two(s3, factor_b, cap), slope_b, rounded_b, p1, own_b) if eight else low
    new_a = maximum(top_a, rows_maximum(maximum(s0, s2)))
    new_b = maximum(top_b, rows_maximum(maximum(s1, s3)))
    nothing = float32(0.0)
    s0, s1 = exp2(s0 - new_a) if one else nothing, exp2(s1 - new_b) if two else nothing
    s2, s3 = exp2(s2 - new_a) if four else nothing, exp2(s3 - new_b) if eight else nothing
    return new_a, new_b, exp2(top_a - new_a), exp2(top_b - new_b), s0, s1, s2, s3


def _begin(
    out: Any, base: int, block: int, cap: float, g: int, t: int, warp: int, low_a: int, low_b: int,
    own_a: int, own_b: int, slope_a: float, rounded_a: float, slope_b: float, rounded_b: float,
) -> Any:  # fmt: skip
    """Start the sums with position 0, which q4 stores whole: sets outputs, returns maxima and weight sums."""
    top_a, top_b, one, two = begun(base, cap, t, warp, low_a, low_b)
    top_a = leaning(top_a, slope_a, rounded_a, int32(0), own_a)
    top_b = leaning(top_b, slope_b, rounded_b, int32(0), own_b)
    for m in static(range(8 * VBLOCKS)):
        value = first_value(block, int32(int32(8 * g) + 64 * (m // 8) + m % 8))
        out[4 * (m // 2) + 2 * (m % 2)] = value if one > float32(0.0) else float32(0.0)
        out[4 * (m // 2) + 2 * (m % 2) + 1] = value if two > float32(0.0) else float32(0.0)
    return top_a, top_b, one if g == 0 else float32(0.0), two if g == 0 else float32(0.0)


def _load_keys(kw: Any, ks: Any, block: int, t: int, at0: int, at1: int, first: int) -> None:
    """Load octets and scales of two positions, of the groups from `first` on."""
    for i in static(range(min(KP, GROUPS - first))):
        kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3] = _key(block, int32(t + 4 * (first + i)), at0)
        kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7] = _key(
            block, int32(t + 4 * (first + i)), at1
        )
        ks[2 * i] = K_scale(block, at0, int32(first + i), int32(K_SCALES), int32(GROUPS))
        ks[2 * i + 1] = K_scale(block, at1, int32(first + i), int32(K_SCALES), int32(GROUPS))


def _load_values(vw: Any, vs: Any, block: int, g: int, pair: int, last: int, first: int) -> None:
    """Load octets and scales of four positions, of the blocks of dimensions from `first` on."""
    for n in static(range(4)):
        at = int32(min(int32(pair + (n & 1) + 8 * (n >> 1)), last) & 255)
        for j in static(range(min(VP, VBLOCKS - first))):
            octet = int32(g + 8 * (first + j))
            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3] = (
                _value(block, octet, at)
            )
            vs[4 * j + n] = _value_scale(block, octet, at)


def _add_scores(
    s: Any, means: Any, kw: Any, ks: Any, block: int, base: int, lane: int, t: int, first: int
) -> None:
    """Add the scores of the loaded keys from group `first` on, and those of the page's mean."""
    for i in static(range(min(KP, GROUPS - first))):
        fragment = int32(base + FRAGMENTS + int32(lane << 4) + 1024 * (first + i))
        s[0], s[1], s[2], s[3] = _key_scores(
            kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3], kw[8 * i + 4], kw[8 * i + 5],
            kw[8 * i + 6], kw[8 * i + 7], ks[2 * i], ks[2 * i + 1], fragment, s[0], s[1], s[2], s[3],
        )  # fmt: skip
        if K_Q4 == 1:
            mean = block + K_MEAN + 32 * int64(int32(t + 4 * (first + i)))
            means[0], means[1], means[2], means[3] = _mean_scores(
                mean, fragment, means[0], means[1], means[2], means[3]
            )


def _add_values(
    out: Any, vw: Any, vs: Any, w0: int, w1: int, less_a: float, less_b: float, first: int
) -> None:
    """Add the loaded values from block `first` on, times the weights w, to the outputs."""
    v = registers(uint32(0), 16)
    for j in static(range(min(VP, VBLOCKS - first))):
        for n in static(range(4)):
            v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3] = _scaled_fp16x2(
                vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3],
                vs[4 * j + n],
            )  # fmt: skip
        for i in static(range(16 * (first + j), 16 * (first + j) + 16, 4)):
            out[i], out[i + 1], out[i + 2], out[i + 3] = _outputs(
                v[i % 16 // 4], v[4 + i % 16 // 4], v[8 + i % 16 // 4], v[12 + i % 16 // 4], w0, w1, less_a,
                less_b, out[i], out[i + 1], out[i + 2], out[i + 3],
            )  # fmt: skip


def _join(out: Any, base: int, g: int, t: int, warp: int) -> None:
    """Add the warps' outputs, scaled to the common maximum, into shared memory, one warp after the other."""
    less_a, less_b = share(base, int32(2 * t), warp), share(base, int32(int32(2 * t) + 1), warp)
    turn = int32(0)
    while turn < WARPS:
        if turn == warp:
            for m in static(range(8 * VBLOCKS)):
                at = int32(base + int32(32 * g) + int32(8 * t) + 256 * m)
                one, two = before(at, turn)
                one, two = (
                    one + out[4 * (m // 2) + 2 * (m % 2)] * less_a,
                    two + out[4 * (m // 2) + 2 * (m % 2) + 1] * less_b,
                )
                sts_f32x2(at, one, two)
        barrier()
        turn = int32(turn + 1)


def _decode_loop(
    out: Any, keys: int, values: int, pages: int, table: int, base: int, chunk: int, end: int, last: int,
    lane: int, warp: int, low_a: int, own_a: int, low_b: int, own_b: int, factor_a: float, factor_b: float,
    cap: float, top_a: float, top_b: float, sum_a: float, sum_b: float, slope_a: float, rounded_a: float,
    slope_b: float, rounded_b: float,
) -> Any:  # fmt: skip
    """Process the split's chunks up to `end`, 16 positions per warp: adds to `out`, returns maxima and sums.

    Cache: addresses of keys, values and the block tables, where the run's begins at `table`; `last` is the
    run's last position. Of the two columns a and b: the last unseen position before the window, the row's
    own position, score factor, maximum, sum; slopes and factors as in `slope_of`.
    """
    g, t = int32(lane >> 2), int32(lane & 3)
    kw = registers(uint32(0), 8 * KP)
    vw = registers(uint32(0), 16 * VP)
    ks = registers(uint32(0), 2 * KP)
    vs = registers(uint32(0), 4 * VP)
    s = registers(float32(0.0), 4)
    means = registers(float32(0.0), 4)
    while chunk <= end:
        p0, place = int32(int32(int32(chunk << 6) + int32(warp << 4)) + g), block_of(pages, table, chunk)
        key_block, value_block = keys + place * K_BLOCK, values + place * V_BLOCK
        # Positions past the step's last may never have been written: the last one is read instead, with
        # weight 0.
        at0, at1 = int32(min(p0, last) & 255), int32(min(int32(p0 + 8), last) & 255)
        pair = int32(int32(p0 - g) + int32(2 * t))
        for i in static(range(4)):
            s[i], means[i] = float32(0.0), float32(0.0)
        for h in static(range(0, GROUPS, KP)):
            _load_keys(kw, ks, key_block, t, at0, at1, h)
            if h == 0 and VP == VBLOCKS:
                _load_values(vw, vs, value_block, g, pair, last, 0)
            _add_scores(s, means, kw, ks, key_block, base, lane, t, h)
        if K_Q4 == 1:  # noqa: SIM102 - the outer condition is constant
            # Rows 0 .. 7 are all the mean. The first 16 positions have no mean, and the memory may hold
            # anything.
            if p0 > 15:
                s[0], s[1], s[2], s[3] = s[0] + means[0], s[1] + means[1], s[2] + means[0], s[3] + means[1]
        seen = sees(p0, low_a, own_a, low_b, own_b)
        top_a, top_b, less_a, less_b, s[0], s[1], s[2], s[3] = _softmax(
            s[0], s[1], s[2], s[3], factor_a, factor_b, cap, top_a, top_b, seen,
            p0, own_a, own_b, slope_a, rounded_a, slope_b, rounded_b,
        )  # fmt: skip
        sum_a, sum_b = sum_a * less_a + (s[0] + s[2]), sum_b * less_b + (s[1] + s[3])
        w0, w1 = transpose_b16(pack_fp16(s[0], s[1])), transpose_b16(pack_fp16(s[2], s[3]))
        for h in static(range(0, VBLOCKS, VP)):
            if VP < VBLOCKS:
                _load_values(vw, vs, value_block, g, pair, last, h)
            _add_values(out, vw, vs, w0, w1, less_a, less_b, h)
        chunk = int32(chunk + blocks_x())
    return top_a, top_b, sum_a, sum_b


def _attend(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, positions: int,
    pages: int, runs: int, slopes: int, rows: int, ratio: int, scale: float, cap: float, window: int,
    row_shift: int,
) -> None:  # fmt: skip
    """Maximum, sum and output of each column over a split's positions. Grid (split, key/value head, columns).

    Cache: addresses of keys, values, the rows' positions and the block table; `runs` as `Runtime.RUNS`; with
    ALIBI `slopes` are float32 (H, 2), see `slope_of`. Input q float32 (rows, H D) and output `partial`,
    strides in bytes. Numbers: rows, `ratio` query heads per
    key/value head, scale, soft cap (0 for none), window (0 for none), `row_shift` (see `parts`).
    """
    wait_for_others()
    base, table = shared(SHARED), int32(0)
    if SEVERAL == 0:
        start, first, stop = ld_i32(positions), int32(block_z() * COLUMNS), rows
    else:
        start, first, stop, table = run_columns(positions, runs, ratio, row_shift, int32(COLUMNS))
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    g, t = int32(lane >> 2), int32(lane & 3)
    count = int32(min(int32(int32(stop * ratio) - first), int32(COLUMNS)))
    last = int32(start + int32(stop - 1))
    lowest = unseen(own_position(int32(0), first, count, start, ratio), window)
    chunk = int32(int32(lowest + 1) >> 6)
    chunk = int32(chunk + int32(int32(block_x() - chunk) & int32(blocks_x() - 1)))
    end = int32(own_position(int32(COLUMNS), first, count, start, ratio) >> 6)
    if SEVERAL == 1:
        end = end if count > 0 else int32(-1)
    if chunk <= end:
        begins = int32(1) if chunk == 0 and lowest < 0 else int32(0)
        place = block_of(pages, table, chunk)
        stage(base, q, q_stride, first, count, ratio, scale, keys + place * K_BLOCK, begins)
        barrier()
        fragments(base)
        own_a = own_position(int32(2 * t), first, count, start, ratio)
        own_b = own_position(int32(int32(2 * t) + 1), first, count, start, ratio)
        low_a, low_b = unseen(own_a, window), unseen(own_b, window)
        head = int32(block_y() * ratio)
        slope_a, rounded_a = slope_of(slopes, own_index(int32(2 * t), first, count), ratio, head)
        slope_b, rounded_b = slope_of(slopes, own_index(int32(int32(2 * t) + 1), first, count), ratio, head)
        factor_a, factor_b = lds_f32x2(int32(base + STATE + int32(8 * t)))
        top_a, top_b, sum_a, sum_b = float32(LOWEST), float32(LOWEST), float32(0.0), float32(0.0)
        out = registers(float32(0.0), 16 * VBLOCKS)
        if KEPT_FIRST == 1:
            if begins != 0:
                top_a, top_b, sum_a, sum_b = _begin(
                    out, base, values + place * V_BLOCK, cap, g, t, warp, low_a, low_b, own_a, own_b, slope_a,
                    rounded_a, slope_b, rounded_b,
                )  # fmt: skip
            low_a, low_b = int32(max(low_a, int32(0))), int32(max(low_b, int32(0)))
        barrier()
        top_a, top_b, sum_a, sum_b = _decode_loop(
            out, keys, values, pages, table, base, chunk, end, last, lane, warp, low_a, own_a, low_b, own_b,
            factor_a, factor_b, cap, top_a, top_b, sum_a, sum_b, slope_a, rounded_a, slope_b, rounded_b,
        )  # fmt: skip
        barrier()
        share_maxima(base, top_a, top_b, sum_a, sum_b)
        _join(out, base, g, t, warp)
        write_partial(base, partial, partial_stride, first, count, ratio)
