"""y = x W^T (+ bias) (+ residual) for one to eight rows of x and packed codes, with tensor cores.

A warp takes `TILES` tiles of 16 outputs and every `WARPS`th unit of two blocks of 64 columns of K. A block of
threads has `WARPS` warps, whose sums are added in order at the end. The words of the next unit are requested
as soon as those of a block have been used, so one or two blocks are always in flight; the first ones are
requested before the rows of x are ready. Codes are operand a as they are (subnormal fp16), x is operand b:
column n of the product is row n of x, so rows do not mix and a row's result does not depend on the others.
Zeros and minimums of groups are operands a, too, the same in all columns of the group.

Budget: 80 registers with one tile a warp (24 warps on a multiprocessor), 96 with two (20 warps, with twice
the bytes in flight), 128 for blocks with the most words (16 warps).
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    fma,
    ld_f32,
    ld_f32x2,
    ld_i32,
    ld_u32x2,
    ld_u32x4,
    ldg_f32,
    ldg_i64,
    lds_f32,
    let_others_start,
    mma_fp16,
    registers,
    shared,
    st_f32,
    static,
    stay,
    sts_f32,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.linear.code_constants import WAYS
from engine.backends.cuda.kernels.linear.read_codes import (
    codes,
    fetch,
    fixed_words,
    half_at,
    low,
    min_code,
    scale,
    share_of_zero,
    ways_of,
)

TILES = WARPS = 1
TILE_SHIFT = SPAN_SHIFT = 0
SPAN = GROUPS = STEPS = PAIRED = 1
SPAN_BYTES = HEADER_BYTES = BLOCK_BYTES = 0
WAY_COUNT = 1
AHEAD = 0
C_WORD = C_RIGHT = C_MORE = C_MORE_RIGHT = S_WORD = S_PLACE = L_WORD = L_PLACE = IN_HEADER = (0,)
MOVED = D_WIDE = 0
D_WORD = M_WORD = ZERO = SUM_LOW = SUM_HIGH = SUMS = 0
SCALES = MINS = ""
LOW_FACTOR = HIGH_FACTOR = 1.0


def x_words_of(x: int) -> Any:
    """Eight words of a row of x, two for each step."""
    words = registers(uint32(0), 8)
    if PAIRED:
        words[0], words[1], words[2], words[3] = ld_u32x4(x)
        words[4], words[5], words[6], words[7] = ld_u32x4(int64(x + 64))
    else:
        for i in static(range(4)):
            words[2 * i], words[2 * i + 1] = ld_u32x2(int64(x + 32 * i))
    return words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]


def sums_of(x: Any, ones: Any) -> Any:
    """Four numbers for each group: sums of x times minus the code of zero, or times one, laid out like the
    products; zeros without `SUMS`.
    """
    sums = registers(float32(0.0), 16)
    for group in static(range(GROUPS if SUMS else 0)):
        for step in static(range(STEPS * group, STEPS * (group + 1))):
            sums[4 * group], sums[4 * group + 1], sums[4 * group + 2], sums[4 * group + 3] = mma_fp16(
                ones[0], ones[1], ones[2], ones[3], x[2 * step], x[2 * step + 1],
                sums[4 * group], sums[4 * group + 1], sums[4 * group + 2], sums[4 * group + 3],
            )  # fmt: skip
    return (
        sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7],
        sums[8], sums[9], sums[10], sums[11], sums[12], sums[13], sums[14], sums[15],
    )  # fmt: skip


def mins_of(w: Any, x: Any) -> Any:
    """The groups' minimums times x, in units of the codes' products; the block's sum starts with it."""
    d = registers(float32(0.0), 4)
    for group in static(range(GROUPS)):
        upper = min_code(w[L_WORD[group]], L_PLACE[group], 0)
        lower = min_code(w[L_WORD[GROUPS + group]], L_PLACE[GROUPS + group], 1)
        for step in static(range(STEPS * group, STEPS * (group + 1))):
            d[0], d[1], d[2], d[3] = mma_fp16(
                upper, lower, upper, lower, x[2 * step], x[2 * step + 1], d[0], d[1], d[2], d[3]
            )
    for row in static(range(2)):
        # Rows g + 8 are in units of `HIGH_FACTOR`; rows g, when minimums are bytes, in units of `LOW_FACTOR`.
        factor = float32(1.0 / (HIGH_FACTOR if row else LOW_FACTOR))
        if MINS == "sub":
            factor = float32(
                half_at(w[M_WORD], row) * float32(-LOW_FACTOR / (HIGH_FACTOR if row else LOW_FACTOR))
            )
        d[2 * row], d[2 * row + 1] = float32(d[2 * row] * factor), float32(d[2 * row + 1] * factor)
    return d[0], d[1], d[2], d[3]


def block_product(words: Any, header: Any, x: Any, sums: Any, fixed: Any) -> Any:
    """A tile's block times x, without the scale of x: two columns of x for row g, then for row g + 8."""
    w = registers(uint32(0), 16)
    for i in static(range(16)):
        w[i] = header[i] if IN_HEADER[i] else words[i]
    parts = registers(float32(0.0), 4)
    dot = registers(float32(0.0), 4)
    a = registers(uint32(0), 4)
    if MINS == "half" or MINS == "sub":
        parts[0], parts[1], parts[2], parts[3] = mins_of(
            (
                w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
                w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
            ),
            x,
        )  # fmt: skip
    for group in static(range(GROUPS)):
        for j in static(range(4)):
            dot[j] = sums[4 * group + j] if ZERO else float32(0.0)
            if MOVED:
                share = share_of_zero(
                    w[S_WORD[GROUPS * (j // 2) + group]], S_PLACE[GROUPS * (j // 2) + group]
                )
                dot[j] = float32(dot[j] * share)
        if MINS == "zero":
            upper = min_code(w[L_WORD[group]], L_PLACE[group], 0)
            lower = min_code(w[L_WORD[GROUPS + group]], L_PLACE[GROUPS + group], 1)
        for step in static(range(STEPS * group, STEPS * (group + 1))):
            for slot in static(range(2 * step, 2 * step + 2)):
                a[2 * slot - 4 * step], a[2 * slot - 4 * step + 1] = codes(
                    w[C_WORD[slot]], C_RIGHT[slot], w[C_MORE[slot]], C_MORE_RIGHT[slot], fixed
                )
            dot[0], dot[1], dot[2], dot[3] = mma_fp16(
                a[0], a[1], a[2], a[3], x[2 * step], x[2 * step + 1], dot[0], dot[1], dot[2], dot[3]
            )
            if MINS == "zero":
                dot[0], dot[1], dot[2], dot[3] = mma_fp16(
                    upper, lower, upper, lower, x[2 * step], x[2 * step + 1], dot[0], dot[1], dot[2], dot[3]
                )
        for row in static(range(2)):
            factor = scale(
                w[S_WORD[GROUPS * row + group]],
                S_PLACE[GROUPS * row + group],
                w[D_WORD + row * D_WIDE],
                row,
                fixed[0],
            )
            for j in static(range(2 * row, 2 * row + 2)):
                parts[j] = fma(factor, dot[j], parts[j])
            if SUMS and not ZERO:
                added = low(
                    w[L_WORD[GROUPS * row + group]], L_PLACE[GROUPS * row + group], w[M_WORD], row, fixed[0]
                )
                for j in static(range(2 * row, 2 * row + 2)):
                    parts[j] = fma(added, sums[4 * group + j], parts[j])
    return parts[0], parts[1], parts[2], parts[3]


def _ask_first(
    tiles: Any, header: Any, near: Any, far: Any, ways: Any, block: int, blocks: int,
    weight: int, tile_bytes: int, first_tile: int, outputs: int,
) -> None:  # fmt: skip
    """Set the addresses of the warp's tiles, and request the words of their first two blocks."""
    for i in static(range(TILES)):
        tiles[i] = int64(weight + int64(min(int32(first_tile + i), int32((outputs - 1) >> 4))) * tile_bytes)
        header[i] = fetch(tiles[i], (ways[0], ways[1], ways[2], ways[3], ways[4]), 0, True, False)
        near[i] = fetch(tiles[i], (ways[0], ways[1], ways[2], ways[3], ways[4]), 0, False, True)
        # A unit without a second block loads the first one twice.
        second = int64(BLOCK_BYTES if int32(block + 1) < blocks else 0)
        far[i] = fetch(tiles[i], (ways[0], ways[1], ways[2], ways[3], ways[4]), second, False, True)


def _multiply(
    totals: Any,
    tile: int,
    words: Any,
    header: Any,
    x_words: Any,
    sums: Any,
    fixed: Any,
    scale_0: float,
    scale_1: float,
) -> None:
    """Add a block's products, times the scales of x's two rows, to a tile's `totals`."""
    parts = block_product(words, header, x_words, sums, fixed)
    for j in static(range(4)):
        totals[4 * tile + j] = fma(scale_1 if j % 2 else scale_0, parts[j], totals[4 * tile + j])


def _ask_next(
    tile: int, tiles: Any, header: Any, near: Any, coming: Any, ways: Any, block: int, blocks: int
) -> None:
    """Request the words of a tile's next block, and the header of its unit."""
    coming[tile] = header[tile]
    if block < blocks:
        coming[tile] = fetch(tiles[tile], (ways[0], ways[1], ways[2], ways[3], ways[4]), AHEAD, True, False)
        near[tile] = fetch(tiles[tile], (ways[0], ways[1], ways[2], ways[3], ways[4]), AHEAD, False, True)


def _ones_of(nothing: int, outputs: int, x_stride: int, y_stride: int) -> Any:
    """The operand whose products are sums of x, in four words that the compiler cannot merge."""
    return (
        uint32(nothing ^ uint32(SUM_LOW)), uint32(uint32(int32(outputs) >> 31) ^ uint32(SUM_HIGH)),
        uint32(uint32(x_stride >> 63) ^ uint32(SUM_LOW)), uint32(uint32(y_stride >> 63) ^ uint32(SUM_HIGH)),
    )  # fmt: skip


def _product(
    weight: int, outputs: int, first_tile: int, y: int, y_stride: int, bias: int, residual: int,
    residual_stride: int, x: int, x_stride: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """`TILES` tiles from `first_tile` on times all rows of x.

    Arguments as in `interface`, for one part.
    """
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    g, t, last_row = int32(lane >> 2), int32(lane & 3), int32(rows - 1)
    blocks = int32((columns + 63) >> 6)
    tile_bytes = int64((blocks + (SPAN - 1)) >> SPAN_SHIFT) * SPAN_BYTES
    totals = registers(float32(0.0), 4 * TILES)
    near = registers(uint32(0), TILES)
    far = registers(uint32(0), TILES)
    header = registers(uint32(0), TILES)
    coming = registers(uint32(0), TILES)
    tiles = registers(int64(0), TILES)
    ways = registers(uint32(0), WAYS)
    block = int32(min(int32(2 * warp), int32((blocks - 1) & -2)))
    ways[0], ways[1], ways[2], ways[3], ways[4] = ways_of(block, lane)
    _ask_first(tiles, header, near, far, ways, block, blocks, weight, tile_bytes, first_tile, outputs)
    wait_for_others()
    let_others_start()
    # 32-bit offsets, since a thread can keep more of them than addresses; eight rows of x are small enough.
    stride = int32(x_stride)
    mine = uint32(int32(min(g, last_row)) * stride + ((16 if PAIRED else 8) * t + 128 * block))
    scale_0 = uint32(int32(min(int32(2 * t), last_row)) * stride + (128 * blocks + 4 * block))
    scale_1 = uint32(int32(min(int32(2 * t + 1), last_row)) * stride + (128 * blocks + 4 * block))
    # This is 0, but the compiler does not know it, so it does not build these words again for each product.
    nothing = uint32(int32(columns) >> 31)
    fixed = fixed_words(nothing)
    ones = _ones_of(nothing, outputs, x_stride, y_stride)
    block = int32(2 * warp)
    while int32(block + 1) < blocks:  # the same for all lanes of a warp
        block = unknown(int32(block + 2 * WARPS))
        x_scale_0, later_0 = ld_f32x2(int64(x + int64(scale_0)))
        x_scale_1, later_1 = ld_f32x2(int64(x + int64(scale_1)))
        x_words = x_words_of(int64(x + int64(mine)))
        sums = sums_of(x_words, ones)
        for i in static(range(TILES)):
            _multiply(totals, i, near[i], header[i], x_words, sums, fixed, x_scale_0, x_scale_1)
            _ask_next(i, tiles, header, near, coming, ways, block, blocks)
        stay()
        # Recomputed, because keeping the address would take registers until here.
        mine = uint32(unknown(int32(mine + 128)))
        x_words = x_words_of(int64(x + int64(mine)))
        sums = sums_of(x_words, ones)
        for i in static(range(TILES)):
            _multiply(totals, i, far[i], header[i], x_words, sums, fixed, later_0, later_1)
            if int32(block + 1) < blocks:
                far[i] = fetch(
                    tiles[i], (ways[0], ways[1], ways[2], ways[3], ways[4]), AHEAD + BLOCK_BYTES, False, True
                )
            header[i] = coming[i]
        for j in static(range(WAY_COUNT)):
            ways[j] = uint32(ways[j] + AHEAD)
        mine, scale_0, scale_1 = (
            uint32(mine + (256 * WARPS - 128)),
            uint32(scale_0 + 8 * WARPS),
            uint32(scale_1 + 8 * WARPS),
        )
    if block < blocks:
        x_scale_0, x_scale_1 = ld_f32(int64(x + int64(scale_0))), ld_f32(int64(x + int64(scale_1)))
        x_words = x_words_of(int64(x + int64(mine)))
        sums = sums_of(x_words, ones)
        for i in static(range(TILES)):
            _multiply(totals, i, near[i], header[i], x_words, sums, fixed, x_scale_0, x_scale_1)
    _sum_up(totals, warp, g, t, outputs, first_tile, y, y_stride, bias, residual, residual_stride, rows)


def _sum_up(
    totals: Any, warp: int, g: int, t: int, outputs: int, first_tile: int,
    y: int, y_stride: int, bias: int, residual: int, residual_stride: int, rows: int,
) -> None:  # fmt: skip
    """Add up the warps' `totals` in order, and store them."""
    memory = shared(512 * TILES * WARPS)
    for i in static(range(TILES)):
        for j in static(range(4)):
            place = int32((8 * warp + 2 * t + j % 2) * (16 * TILES) + (16 * i + 8 * (j // 2)) + g)
            sts_f32(
                int32(memory + 4 * place),
                float32(totals[4 * i + j] * float32(HIGH_FACTOR if j >= 2 else LOW_FACTOR)),
            )
    barrier()
    for index in range(thread(), 128 * TILES, 32 * WARPS):
        row, output = int32(index >> TILE_SHIFT), int32(16 * first_tile + (index & (16 * TILES - 1)))
        if row < rows and output < outputs:
            store(int32(memory + 4 * index), output, row, y, y_stride, bias, residual, residual_stride)


def store(
    memory: int, output: int, row: int, y: int, y_stride: int, bias: int, residual: int, residual_stride: int
) -> None:
    """Store one number of y: the warps' sums, plus bias and residual."""
    total = float32(0.0)
    for i in range(WARPS):
        total = float32(total + lds_f32(int32(memory + i * (512 * TILES))))
    at = int64(output) * 4
    if bias != 0:
        total = float32(total + ldg_f32(int64(bias + at)))
    if residual != 0:
        total = float32(total + ld_f32(int64(residual + int64(row) * residual_stride + at)))
    st_f32(int64(y + int64(row) * y_stride + at), total)


def linear(
    weight: int, y: int, y_stride: int, bias: int, residual: int, residual_stride: int, outputs: int,
    weight_1: int, y_1: int, y_stride_1: int, bias_1: int, residual_1: int, residual_stride_1: int,
    outputs_1: int, weight_2: int, y_2: int, y_stride_2: int, bias_2: int, residual_2: int,
    residual_stride_2: int, outputs_2: int, x: int, x_stride: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """The `linear` kernel of `interface`: finds the block's part and multiplies."""
    group = int32(block_x())
    first = int32((outputs + (16 * TILES - 1)) >> TILE_SHIFT)
    second = int32((outputs_1 + (16 * TILES - 1)) >> TILE_SHIFT)
    if group >= first:
        group = int32(group - first)
        weight, y, y_stride, outputs = weight_1, y_1, y_stride_1, outputs_1
        bias, residual, residual_stride = bias_1, residual_1, residual_stride_1
        if group >= second:
            group = int32(group - second)
            weight, y, y_stride, outputs = weight_2, y_2, y_stride_2, outputs_2
            bias, residual, residual_stride = bias_2, residual_2, residual_stride_2
    tile = int32(group * TILES)
    _product(weight, outputs, tile, y, y_stride, bias, residual, residual_stride, x, x_stride, rows, columns)


def experts(
    table: int, outputs: int, y: int, y_stride: int, bias: int, bias_stride: int, ids: int, ids_stride: int,
    used: int, x: int, x_stride: int, columns: int,
) -> None:  # fmt: skip
    """The `experts` kernel of `interface`: each row of x times the matrix of its expert."""
    wait_for_others()
    spread = int32(block_y())
    row = int32(spread // used)
    expert = int64(ld_i32(int64(ids + int64(row) * ids_stride + int64(spread - row * used) * 4)))
    weight = ldg_i64(int64(table + expert * 8))
    if weight != 0:
        own_bias = int64(bias + expert * bias_stride) if bias != 0 else int64(0)
        own_x, own_y = int64(x + int64(spread) * x_stride), int64(y + int64(spread) * y_stride)
        tile, none = int32(block_x() * TILES), int64(0)
        _product(
            weight, outputs, tile, own_y, y_stride, own_bias, none, none, own_x, x_stride, int32(1), columns
        )
