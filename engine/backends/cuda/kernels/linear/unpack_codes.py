"""Unpacks packed codes to fp16 rows for torch's products, and to float32 rows for embeddings."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    half_float,
    high_half_float,
    ld_i32,
    pack_fp16,
    registers,
    st_f32x4,
    st_u32x2,
    st_u32x4,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.linear.code_constants import constants
from engine.backends.cuda.kernels.linear.interface import EMBED, UNPACK, UNPACK_COLUMNS
from engine.backends.cuda.kernels.linear.read_codes import (
    codes,
    fetch,
    fixed_words,
    low,
    moved_by,
    scale,
    ways_of,
)
from engine.backends.cuda.layouts.codes import CodeLayout

WARPS = 8
SPAN = GROUPS = STEPS = PAIRED = 1
SPAN_SHIFT = SPAN_BYTES = BLOCK_BYTES = 0
C_WORD = C_RIGHT = C_MORE = C_MORE_RIGHT = S_WORD = S_PLACE = L_WORD = L_PLACE = IN_HEADER = (0,)
D_WORD = M_WORD = ZERO = MOVED = D_WIDE = 0
SCALES = MINS = ""
LOW_FACTOR = HIGH_FACTOR = 1.0


def value(code: float, factor: float, less: float, row: int) -> Any:
    """The number that a code stands for: (n - zero + moved) scale, or n scale + minimum.

    It is rounded like the file format's own decoder, except for one rounding.
    """
    number = float32(code * (float32(HIGH_FACTOR) if row else float32(LOW_FACTOR)))
    if ZERO:
        number = float32(number - float32(ZERO))
        out = float32((float32(number + less) if MOVED else number) * factor)
    elif SCALES == "power":
        out = fma(number, factor, float32(0.0))  # also right for subnormal factors
    elif MINS == "zero":
        out = float32(float32(number + less) * factor)
    elif MINS != "":
        out = fma(number, factor, less)
    else:
        out = float32(number * factor)
    return out


def whole_block(tile: int, block: int, lane: int) -> Any:
    """A lane's words of a block and of its span's header."""
    ways = ways_of(int32(block & -2), lane)
    words, header = (
        fetch(tile, ways, int64(int32(block & 1) * BLOCK_BYTES), False, True),
        fetch(tile, ways, 0, True, False),
    )
    w = registers(uint32(0), 16)
    for i in static(range(16)):
        w[i] = header[i] if IN_HEADER[i] else words[i]
    return (
        w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
    )  # fmt: skip


def values_of(words: Any) -> Any:
    """All 32 numbers of a block that a lane holds: those of row g by slot, then those of row g + 8."""
    out = registers(float32(0.0), 32)
    fixed = fixed_words(uint32(0))
    factors = registers(float32(0.0), 8)
    mins = registers(float32(0.0), 8)
    for row in static(range(2)):
        for group in static(range(GROUPS)):
            factors[4 * row + group] = scale(
                words[S_WORD[GROUPS * row + group]],
                S_PLACE[GROUPS * row + group],
                words[D_WORD + row * D_WIDE],
                row,
                fixed[0],
            )
            if MOVED:
                mins[4 * row + group] = moved_by(
                    words[S_WORD[GROUPS * row + group]], S_PLACE[GROUPS * row + group]
                )
            if MINS != "":
                mins[4 * row + group] = low(
                    words[L_WORD[GROUPS * row + group]],
                    L_PLACE[GROUPS * row + group],
                    words[M_WORD],
                    row,
                    fixed[0],
                )
    for slot in static(range(8)):
        pair, pair_8 = codes(
            words[C_WORD[slot]], C_RIGHT[slot], words[C_MORE[slot]], C_MORE_RIGHT[slot], fixed
        )
        for row in static(range(2)):
            two = pair_8 if row else pair
            factor = factors[4 * row + slot // (2 * STEPS)]
            less = mins[4 * row + slot // (2 * STEPS)]
            out[16 * row + 2 * slot] = value(half_float(two), factor, less, row)
            out[16 * row + 2 * slot + 1] = value(high_half_float(two), factor, less, row)
    return (
        out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7], out[8], out[9], out[10], out[11],
        out[12], out[13], out[14], out[15], out[16], out[17], out[18], out[19], out[20], out[21], out[22],
        out[23], out[24], out[25], out[26], out[27], out[28], out[29], out[30], out[31],
    )  # fmt: skip


def _unpack(weight: int, first: int, target: int, stride: int, columns: int) -> None:
    """The `unpack` kernel of `interface`; a warp takes a block."""
    lane = int32(thread() & 31)
    g, t = int32(lane >> 2), int32(lane & 3)
    blocks, block = int32((columns + 63) >> 6), int32(block_x() * WARPS + (thread() >> 5))
    tile_bytes = int64((blocks + (SPAN - 1)) >> SPAN_SHIFT) * SPAN_BYTES
    wait_for_others()
    if block < blocks:
        tile = int64(weight + int64(first + block_y()) * tile_bytes)
        v = values_of(whole_block(tile, block, lane))
        line = int64(target + int64(16 * block_y() + g) * stride + int64(block) * 128)
        for row in static(range(2)):
            at = int64(line + stride * (8 * row))
            if PAIRED:
                for half in static(range(2)):
                    st_u32x4(
                        int64(at + 64 * half + int64(t) * 16),
                        pack_fp16(v[16 * row + 8 * half], v[16 * row + 8 * half + 1]),
                        pack_fp16(v[16 * row + 8 * half + 2], v[16 * row + 8 * half + 3]),
                        pack_fp16(v[16 * row + 8 * half + 4], v[16 * row + 8 * half + 5]),
                        pack_fp16(v[16 * row + 8 * half + 6], v[16 * row + 8 * half + 7]),
                    )
            else:
                for step in static(range(4)):
                    st_u32x2(
                        int64(at + 32 * step + int64(t) * 8),
                        pack_fp16(v[16 * row + 4 * step], v[16 * row + 4 * step + 1]),
                        pack_fp16(v[16 * row + 4 * step + 2], v[16 * row + 4 * step + 3]),
                    )


def _embed(weight: int, tokens: int, y: int, y_stride: int, factor: float, columns: int) -> None:
    """The `embed` kernel of `interface`; warps take blocks in turn, and four lanes hold the row."""
    wait_for_others()
    lane = int32(thread() & 31)
    t = int32(lane & 3)
    token = int32(ld_i32(int64(tokens + int64(block_y()) * 4)))
    blocks = int32((columns + 63) >> 6)
    tile = int64(weight + int64(token >> 4) * (int64((blocks + (SPAN - 1)) >> SPAN_SHIFT) * SPAN_BYTES))
    upper = int32(token & 8)
    if int32(lane >> 2) == int32(token & 7):
        for block in range(thread() >> 5, blocks, WARPS):
            v = values_of(whole_block(tile, int32(block), lane))
            for four in static(range(4)):
                column = int32(
                    64 * block + (32 * (four // 2) + 4 * (four % 2) + 8 * t if PAIRED else 16 * four + 4 * t)
                )
                at = int64(y + int64(block_y()) * y_stride + int64(column) * 4)
                if column < columns:
                    st_f32x4(
                        at,
                        float32(factor * (v[16 + 4 * four] if upper else v[4 * four])),
                        float32(factor * (v[17 + 4 * four] if upper else v[4 * four + 1])),
                        float32(factor * (v[18 + 4 * four] if upper else v[4 * four + 2])),
                        float32(factor * (v[19 + 4 * four] if upper else v[4 * four + 3])),
                    )


@cache
def unpack_kernel(weight_layout: CodeLayout) -> Kernel:
    assert WARPS * 64 == UNPACK_COLUMNS
    return Kernel(f"unpack_{weight_layout.name}", _unpack, UNPACK, 32 * WARPS, 80, constants(weight_layout))


@cache
def embed_kernel(weight_layout: CodeLayout) -> Kernel:
    return Kernel(f"embed_{weight_layout.name}", _embed, EMBED, 32 * WARPS, 80, constants(weight_layout))
