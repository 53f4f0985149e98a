"""Small-batch attention with tensor cores for wide heads, whose outputs one warp's registers do not hold, and
for latent attention, whose values are the first columns of the keys.

As `mma`, but the four warps of a block share the dimensions instead of the positions. Each adds up the scores
of 64 positions over its groups of the keys; the parts meet in shared memory, where every warp finds the sums,
so that maxima and weights are the same in all of them; then each adds the weighted values of its blocks of 64
dimensions. Two halves of the exchange take turns, so that one barrier for each chunk is enough.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    add_fp16x2,
    barrier,
    block_x,
    block_y,
    block_z,
    blocks_x,
    ld_f32x4,
    ld_i32,
    lds_f32x2,
    lds_f32x4,
    pack_fp16,
    registers,
    shared,
    st_f32x2,
    st_f32x4,
    static,
    sts_f32x4,
    sts_u32x4,
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
from engine.backends.cuda.kernels.attention.mma import (
    _key,
    _key_scores,
    _mean_scores,
    _outputs,
    _scaled_fp16x2,
    _softmax,
    _value,
    _value_scale,
)
from engine.backends.cuda.kernels.attention.parts import (
    HEAD,
    LOWEST,
    row_of,
    rows_sum,
    run_columns,
    sees,
    unseen,
)
from engine.backends.cuda.kernels.attention.stage import (
    COLUMNS,
    WARPS,
    begun,
    block_of,
    first_value,
    fragments,
    own_position,
    stage,
)

TILES = 4
"""Tiles of 16 positions in a chunk."""
HALF = 16 * 32 * TILES * WARPS
"""Bytes of half of the exchange."""

D, GROUPS, DP, VDP = 512, 16, 512, 512
"""Columns of a key, their groups of 32, padded columns of keys, and of values."""
HADAMARD = SEVERAL = KEPT_FIRST = VALUE_MEANS = CHUNKED = ALIBI = 0
"""As in `mma`; VALUE_MEANS is 1 if values are keys of q4, to which their page's mean belongs."""
OWN_GROUPS, OWN_BLOCKS = 4, 2
"""Groups of keys and blocks of 64 columns of values of a warp, padded."""
FRAGMENTS, STATE, SHARED = 0, 0, 0
"""Offsets in shared memory: query fragments, score factors. Queries, later the exchange, are at 0."""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = K_MEAN = K_Q4 = K_OCTET = K_OCTETS = 0
V_BLOCK = V_ROW = V_SCALES = V_LIMIT = V_MEAN = V_OCTET = V_OCTETS = 0
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


def _no_queries(base: int) -> None:
    """Zeros as the fragments of groups past the keys' last."""
    me, nothing = thread(), uint32(0)
    at = int32(int32(1024 * GROUPS) + int32(16 * me))
    while at < 1024 * WARPS * OWN_GROUPS:
        sts_u32x4(int32(base + FRAGMENTS + at), nothing, nothing, nothing, nothing)
        at = int32(at + 16 * 32 * WARPS)


def _group_scale(block: int, at: int, group: int) -> int:
    """The scale of a group of a position's key, of the last one for those past it."""
    group = group if group < GROUPS else int32(GROUPS - 1)
    return K_scale(block, at, group, int32(K_SCALES), int32(GROUPS))


def _tile_scores(
    s: Any, means: Any, block: int, base: int, lane: int, first: int, at0: int, at1: int, p0: int
) -> None:
    """The scores of two positions over this warp's groups, which begin at `first`."""
    t = int32(lane & 3)
    kw = registers(uint32(0), 8 * OWN_GROUPS)
    ks = registers(uint32(0), 2 * OWN_GROUPS)
    for i in static(range(4)):
        s[i], means[i] = float32(0.0), float32(0.0)
    for i in static(range(OWN_GROUPS)):
        octet = int32(t + 4 * int32(first + i))
        kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3] = _key(block, octet, at0)
        kw[8 * i + 4], kw[8 * i + 5], kw[8 * i + 6], kw[8 * i + 7] = _key(block, octet, at1)
        ks[2 * i] = _group_scale(block, at0, int32(first + i))
        ks[2 * i + 1] = _group_scale(block, at1, int32(first + i))
    for i in static(range(OWN_GROUPS)):
        fragment = int32(base + FRAGMENTS + int32(lane << 4) + int32(1024 * int32(first + i)))
        s[0], s[1], s[2], s[3] = _key_scores(
            kw[8 * i], kw[8 * i + 1], kw[8 * i + 2], kw[8 * i + 3], kw[8 * i + 4], kw[8 * i + 5],
            kw[8 * i + 6], kw[8 * i + 7], ks[2 * i], ks[2 * i + 1], fragment, s[0], s[1], s[2], s[3],
        )  # fmt: skip
        if K_Q4 == 1:
            octet = int32(t + 4 * int32(first + i))
            octet = octet if octet < K_OCTETS else int32(K_OCTETS - 1)
            means[0], means[1], means[2], means[3] = _mean_scores(
                block + K_MEAN + 32 * int64(octet), fragment, means[0], means[1], means[2], means[3]
            )
    if K_Q4 == 1:  # noqa: SIM102 - the outer condition is constant
        # Rows 0 .. 7 are all the mean, which the first 16 positions do not have.
        if p0 > 15:
            s[0], s[1], s[2], s[3] = s[0] + means[0], s[1] + means[1], s[2] + means[0], s[3] + means[1]


def _sum_of_warps(s: Any, half: int, tile: int, lane: int) -> None:
    """The scores of a tile over all groups, in the order of the warps."""
    for i in static(range(4)):
        s[i] = float32(0.0)
    for w in static(range(WARPS)):
        a, b, c, d = lds_f32x4(int32(half + int32(16 * int32(int32(int32(w * TILES + tile) << 5) + lane))))
        s[0], s[1], s[2], s[3] = s[0] + a, s[1] + b, s[2] + c, s[3] + d


def _means_of(m: Any, block: int, g: int, first: int) -> None:
    """The page's mean of the dimensions of this lane's octets, from block `first` on, as pairs of fp16."""
    for j in static(range(OWN_BLOCKS)):
        octet = int32(g + 8 * int32(first + j))
        octet = octet if octet < V_OCTETS else int32(V_OCTETS - 1)
        a, b, c, d = ld_f32x4(block + V_MEAN + 32 * int64(octet))
        m[4 * j], m[4 * j + 1] = pack_fp16(a, b), pack_fp16(c, d)
        a, b, c, d = ld_f32x4(block + V_MEAN + 32 * int64(octet) + 16)
        m[4 * j + 2], m[4 * j + 3] = pack_fp16(a, b), pack_fp16(c, d)


def _tile_values(
    out: Any, m: Any, block: int, g: int, first: int, pair: int, last: int, w0: int, w1: int, less_a: float,
    less_b: float,
) -> None:  # fmt: skip
    """Add the values of a tile's 16 positions, times the weights w, in this warp's blocks from `first` on.

    `m` are the means to add, zeros for none.
    """
    vw = registers(uint32(0), 16 * OWN_BLOCKS)
    vs = registers(uint32(0), 4 * OWN_BLOCKS)
    v = registers(uint32(0), 16)
    for n in static(range(4)):
        at = int32(min(int32(pair + (n & 1) + 8 * (n >> 1)), last) & 255)
        for j in static(range(OWN_BLOCKS)):
            octet = int32(g + 8 * int32(first + j))
            vw[16 * j + 4 * n], vw[16 * j + 4 * n + 1], vw[16 * j + 4 * n + 2], vw[16 * j + 4 * n + 3] = (
                _value(block, octet, at)
            )
            vs[4 * j + n] = _value_scale(block, octet, at)
    for j in static(range(OWN_BLOCKS)):
        for n in static(range(4)):
            v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3] = _scaled_fp16x2(
                vw[16 * j + 4 * n],
                vw[16 * j + 4 * n + 1],
                vw[16 * j + 4 * n + 2],
                vw[16 * j + 4 * n + 3],
                vs[4 * j + n],
            )
            if VALUE_MEANS == 1:
                v[4 * n], v[4 * n + 1] = (
                    add_fp16x2(v[4 * n], m[4 * j]),
                    add_fp16x2(v[4 * n + 1], m[4 * j + 1]),
                )
                v[4 * n + 2] = add_fp16x2(v[4 * n + 2], m[4 * j + 2])
                v[4 * n + 3] = add_fp16x2(v[4 * n + 3], m[4 * j + 3])
        for i in static(range(16 * j, 16 * j + 16, 4)):
            out[i], out[i + 1], out[i + 2], out[i + 3] = _outputs(
                v[i % 16 // 4], v[4 + i % 16 // 4], v[8 + i % 16 // 4], v[12 + i % 16 // 4], w0, w1, less_a,
                less_b, out[i], out[i + 1], out[i + 2], out[i + 3],
            )  # fmt: skip


def _write(
    out: Any, target: int, dim: int, j: int, second: int, top: float, total: float, writes_sums: int
) -> None:
    """One column's eight numbers of block `j`, which begin at dimension `dim`, and its maximum and sum."""
    if j == 0 and writes_sums != 0:
        st_f32x2(target, top, total)
    if dim < VDP:
        at, f = target + 4 * HEAD + 4 * int64(dim), float32(V_FACTOR)
        for i in static(range(2)):
            st_f32x4(
                at + 16 * i, out[16 * j + 8 * i + second] * f, out[16 * j + 8 * i + second + 2] * f,
                out[16 * j + 8 * i + second + 4] * f, out[16 * j + 8 * i + second + 6] * f,
            )  # fmt: skip


def _store(
    out: Any, partial: int, partial_stride: int, ratio: int, index: int, lane: int, warp: int, second: int,
    top: float, total: float,
) -> None:  # fmt: skip
    """Write this warp's dimensions of column `index`; `second` is 1 for a lane's second column."""
    row = row_of(index, ratio)
    head = int32(int32(block_y() * ratio) + int32(index - int32(row * ratio)))
    place = int64(int32(int32(head * blocks_x()) + block_x())) * int64(4 * (VDP + HEAD))
    target = partial + int64(row) * partial_stride + place
    writes = int32(1) if warp == 0 and lane < 4 else int32(0)
    for j in static(range(OWN_BLOCKS)):
        dim = int32(int32(int32(lane >> 2) << 3) + int32(int32(int32(warp * OWN_BLOCKS) + j) << 6))
        _write(out, target, dim, j, second, top, total, writes)


def _begin(out: Any, base: int, block: int, cap: float, lane: int, first: int, low_a: int, low_b: int) -> Any:
    """Start the sums with position 0, which q4 stores whole: sets outputs, returns maxima and weight sums."""
    g, t = int32(lane >> 2), int32(lane & 3)
    top_a, top_b, one, two = begun(base, cap, t, int32(0), low_a, low_b)
    for k in static(range(8 * OWN_BLOCKS)):
        value = first_value(block, int32(int32(8 * g) + int32(int32(first << 6) + 64 * (k // 8) + k % 8)))
        out[4 * (k // 2) + 2 * (k % 2)] = value if one > float32(0.0) else float32(0.0)
        out[4 * (k // 2) + 2 * (k % 2) + 1] = value if two > float32(0.0) else float32(0.0)
    return top_a, top_b, one if g == 0 else float32(0.0), two if g == 0 else float32(0.0)


def _first_chunk(lowest: int) -> int:
    """The first chunk of this split with a position after `lowest`."""
    chunk = int32(int32(lowest + 1) >> 6)
    return int32(chunk + int32(int32(block_x() - chunk) & int32(blocks_x() - 1)))


def _decode_loop(
    out: Any, keys: int, values: int, pages: int, table: int, base: int, chunk: int, end: int, last: int,
    lane: int, warp: int, low_a: int, own_a: int, low_b: int, own_b: int, factor_a: float, factor_b: float,
    cap: float, top_a: float, top_b: float, sum_a: float, sum_b: float,
) -> Any:  # fmt: skip
    """Process the split's chunks up to `end`: adds to `out`, returns maxima and sums; see `mma`."""
    g, t = int32(lane >> 2), int32(lane & 3)
    group, block64 = int32(warp * OWN_GROUPS), int32(warp * OWN_BLOCKS)
    s = registers(float32(0.0), 4)
    means = registers(float32(0.0), 4)
    m = registers(uint32(0), 4 * OWN_BLOCKS)
    half, no = base, float32(0.0)
    while chunk <= end:
        place, p0 = block_of(pages, table, chunk), int32(int32(chunk << 6) + g)
        tiles = int32(min(int32(int32(int32(last - int32(chunk << 6)) >> 4) + 1), int32(TILES)))
        tile = int32(0)
        while tile < tiles:
            # Positions past the step's last may never have been written: the last one is read instead,
            # with weight 0.
            at = int32(p0 + int32(tile << 4))
            _tile_scores(
                s, means, keys + place * K_BLOCK, base, lane, group, int32(min(at, last) & 255),
                int32(min(int32(at + 8), last) & 255), at,
            )  # fmt: skip
            mine = int32(int32(int32(int32(warp * TILES) + tile) << 5) + lane)
            sts_f32x4(int32(half + int32(16 * mine)), s[0], s[1], s[2], s[3])
            tile = int32(tile + 1)
        barrier()
        if VALUE_MEANS == 1:
            _means_of(m, values + place * V_BLOCK, g, block64)
            if chunk == 0:
                for i in static(range(4 * OWN_BLOCKS)):
                    m[i] = uint32(0)
        tile = int32(0)
        while tile < tiles:
            _sum_of_warps(s, half, tile, lane)
            at = int32(p0 + int32(tile << 4))
            top_a, top_b, less_a, less_b, s[0], s[1], s[2], s[3] = _softmax(
                s[0], s[1], s[2], s[3], factor_a, factor_b, cap, top_a, top_b,
                sees(at, low_a, own_a, low_b, own_b), at, own_a, own_b, no, no, no, no,
            )  # fmt: skip
            sum_a, sum_b = sum_a * less_a + (s[0] + s[2]), sum_b * less_b + (s[1] + s[3])
            w0, w1 = transpose_b16(pack_fp16(s[0], s[1])), transpose_b16(pack_fp16(s[2], s[3]))
            pair = int32(int32(at - g) + int32(2 * t))
            _tile_values(out, m, values + place * V_BLOCK, g, block64, pair, last, w0, w1, less_a, less_b)
            if VALUE_MEANS == 1:  # noqa: SIM102 - the outer condition is constant
                if chunk == 0 and tile == 0:  # the first 16 positions have no mean
                    _means_of(m, values + place * V_BLOCK, g, block64)
            tile = int32(tile + 1)
        half = int32(int32(base + HALF) - int32(half - base))
        chunk = int32(chunk + blocks_x())
    return top_a, top_b, sum_a, sum_b


def _attend_wide(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, positions: int,
    pages: int, runs: int, slopes: int, rows: int, ratio: int, scale: float, cap: float, window: int,
    row_shift: int,
) -> None:  # fmt: skip
    """Maximum, sum and output of each column over a split's positions. Grid (split, key/value head, columns).

    Arguments as in `mma._attend`; `slopes` are not used.
    """
    wait_for_others()
    base, table = shared(SHARED), int32(0)
    if SEVERAL == 0:
        start, first, stop = ld_i32(positions), int32(block_z() * COLUMNS), rows
    else:
        start, first, stop, table = run_columns(positions, runs, ratio, row_shift, int32(COLUMNS))
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    t = int32(lane & 3)
    count = int32(min(int32(int32(stop * ratio) - first), int32(COLUMNS)))
    last = int32(start + int32(stop - 1))
    lowest = unseen(own_position(int32(0), first, count, start, ratio), window)
    chunk = _first_chunk(lowest)
    end = int32(own_position(int32(COLUMNS), first, count, start, ratio) >> 6)
    if SEVERAL == 1:
        end = end if count > 0 else int32(-1)
    if chunk <= end:
        begins = int32(1) if chunk == 0 and lowest < 0 else int32(0)
        place = block_of(pages, table, chunk)
        stage(base, q, q_stride, first, count, ratio, scale, keys + place * K_BLOCK, begins)
        _no_queries(base)
        barrier()
        fragments(base)
        own_a = own_position(int32(2 * t), first, count, start, ratio)
        own_b = own_position(int32(int32(2 * t) + 1), first, count, start, ratio)
        low_a, low_b = unseen(own_a, window), unseen(own_b, window)
        factor_a, factor_b = lds_f32x2(int32(base + STATE + int32(8 * t)))
        top_a, top_b, sum_a, sum_b = float32(LOWEST), float32(LOWEST), float32(0.0), float32(0.0)
        out = registers(float32(0.0), 16 * OWN_BLOCKS)
        block64 = int32(warp * OWN_BLOCKS)
        if KEPT_FIRST == 1:
            if begins != 0:
                top_a, top_b, sum_a, sum_b = _begin(
                    out, base, values + place * V_BLOCK, cap, lane, block64, low_a, low_b
                )
            low_a, low_b = int32(max(low_a, int32(0))), int32(max(low_b, int32(0)))
        barrier()
        top_a, top_b, sum_a, sum_b = _decode_loop(
            out, keys, values, pages, table, base, chunk, end, last, lane, warp, low_a, own_a, low_b, own_b,
            factor_a, factor_b, cap, top_a, top_b, sum_a, sum_b,
        )  # fmt: skip
        at = int32(first + int32(2 * t))
        sum_a, sum_b = rows_sum(sum_a), rows_sum(sum_b)
        if int32(2 * t) < count:
            _store(out, partial, partial_stride, ratio, at, lane, warp, 0, top_a, sum_a)
        if int32(int32(2 * t) + 1) < count:
            _store(out, partial, partial_stride, ratio, int32(at + 1), lane, warp, 1, top_b, sum_b)
