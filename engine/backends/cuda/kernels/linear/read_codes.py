"""Device functions that read blocks of packed codes: words, codes as matrix operands, scales and minimums.

`layouts.codes` describes the layout; `code_constants` derives the constants used here.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    and_or,
    bits_float,
    fma,
    half_float,
    high_half_float,
    ld_stream,
    ld_stream1,
    ld_stream2,
    ld_u32,
    ld_u32x2,
    ld_u32x4,
    mul_fp16x2,
    permute_bytes,
    registers,
    static,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.linear.code_constants import WAYS
from engine.backends.cuda.layouts.codes import FP4_BITS, FP4_SIGNS

REGIONS = 1
R_WORDS = R_AT = R_FIRST = R_HEADER = R_LANE = (0,)
SCALES = MINS = TABLE = ""
BITS = GROUPS = 1
MASK, SECOND, MAGIC = 0, 0, 0x4B000000
Z_ONES = (0,)
UNIT = 1.0
MOVED = LOWEST = SHARE = D_WIDE = 0
TABLE_0 = TABLE_1 = TABLE_2 = TABLE_3 = 0
SPAN = 1
SPAN_SHIFT = SPAN_BYTES = HEADER_BYTES = BLOCK_BYTES = 0
WAY_COUNT = 1
R_WAY = W_LANE = W_BYTES = W_INNER = (0,)


def ways_of(block: int, lane: int) -> Any:
    """A lane's offsets in a tile, one for each way (up to five), for the unit that starts at `block`."""
    at = registers(uint32(int32(block >> SPAN_SHIFT) * SPAN_BYTES), WAYS)
    for w in static(range(WAY_COUNT)):
        near = int32((lane if W_LANE[w] else lane >> 2) * W_BYTES[w])
        if W_INNER[w]:
            near = int32(near + int32(block & (SPAN - 1)) * BLOCK_BYTES)
        at[w] = uint32(at[w] + near)
    return at[0], at[1], at[2], at[3], at[4]


def fetch(tile: int, ways: Any, inner: int, headers: bool, blocks: bool) -> Any:
    """The 16 words that a lane needs of a block: 8 of codes, 8 of numbers; missing ones are 0.

    With `headers` those of the span header are loaded, `inner` bytes further on; with `blocks` those of the
    block that starts `inner` bytes into the unit.
    """
    words = registers(uint32(0), 16)
    for r in static(range(REGIONS)):
        if headers if R_HEADER[r] else blocks:
            at = int64(
                int64(tile + int64(ways[R_WAY[r]]))
                + inner
                + (R_AT[r] if R_HEADER[r] else R_AT[r] + HEADER_BYTES)
            )
            if R_WORDS[r] == 4:
                if R_LANE[r]:
                    words[R_FIRST[r]], words[R_FIRST[r] + 1], words[R_FIRST[r] + 2], words[R_FIRST[r] + 3] = (
                        ld_stream(at)
                    )
                else:
                    words[R_FIRST[r]], words[R_FIRST[r] + 1], words[R_FIRST[r] + 2], words[R_FIRST[r] + 3] = (
                        ld_u32x4(at)
                    )
            elif R_WORDS[r] == 2:
                if R_LANE[r]:
                    words[R_FIRST[r]], words[R_FIRST[r] + 1] = ld_stream2(at)
                else:
                    words[R_FIRST[r]], words[R_FIRST[r] + 1] = ld_u32x2(at)
            elif R_LANE[r]:
                words[R_FIRST[r]] = ld_stream1(at)
            else:
                words[R_FIRST[r]] = ld_u32(at)
    return (
        words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7],
        words[8], words[9], words[10], words[11], words[12], words[13], words[14], words[15],
    )  # fmt: skip


def shifted(word: int, right: int) -> Any:
    """Shift right by `right`, or left if it is negative; `right` is a constant."""
    if right >= 0:
        return uint32(word >> uint32(right))
    return uint32(word << uint32(-right))


def fixed_words(nothing: int) -> Any:
    """Constants that a kernel keeps in registers: the bits of 2^23, then the lookup table.

    `nothing` is 0, but the compiler must not know it: it would load such a register again for each use, since
    an instruction takes only one immediate constant.
    """
    if TABLE == "int8":
        return (
            uint32(nothing ^ uint32(MAGIC)), uint32(nothing ^ uint32(TABLE_0)),
            uint32(nothing ^ uint32(TABLE_1)), uint32(nothing ^ uint32(TABLE_2)),
            uint32(nothing ^ uint32(TABLE_3)),
        )  # fmt: skip
    return uint32(nothing ^ uint32(MAGIC)), uint32(0), uint32(0), uint32(0), uint32(0)


def looked_up(four: int, fixed: Any) -> Any:
    """Look up the four lowest nibbles in the table of 16 bytes.

    For a nibble of 8 or more, the first table gives eight copies of a byte's top bit; with that bit inverted,
    the nibble picks a byte of the second table. Entries i and i + 8 have the same top bit, so the second
    table stores 0 there, and its bytes are inverted where the top bit is 1.
    """
    lower = permute_bytes(fixed[1], fixed[2], four)
    return uint32(lower ^ permute_bytes(fixed[3], fixed[4], uint32(four ^ uint32(0x88888888))))


def fp4_code(word: int, which: int) -> Any:
    """Two fp16 numbers, 2^-14 times those of e2m1, whose bits become the sign, the lowest bits of the
    exponent and the top bit of the fraction.
    """
    bits = shifted(word, FP4_BITS[which] - 9)
    if FP4_SIGNS[which] - FP4_BITS[which] == 6:
        return uint32(bits & uint32(0x8E008E00))
    return and_or(shifted(word, FP4_SIGNS[which] - 15), uint32(0x80008000), uint32(bits & uint32(0x0E000E00)))


def codes(word: int, right: int, more: int, more_right: int, fixed: Any) -> Any:
    """Two fp16 codes of row g, and of row g + 8 (times 16, or as they are), as words of operand a."""
    if TABLE == "fp4":
        first, second = fp4_code(word, right // 8), fp4_code(word, right // 8 + 1)
    elif BITS == 8 or TABLE != "":
        four = word if BITS == 8 else looked_up(shifted(word, right), fixed)
        first, second = uint32(four & uint32(0xFF00FF)), permute_bytes(four, uint32(0), uint32(0x4341))
    else:
        four = shifted(word, right)
        first, second = uint32(four & uint32(MASK)), uint32(four & uint32(MASK << 4))
        if SECOND != 0:
            four = shifted(more, more_right)
            first, second = and_or(four, uint32(SECOND), first), and_or(four, uint32(SECOND << 4), second)
    return first, second


def half_at(word: int, place: int) -> Any:
    """The low or the high half of a word as float32; `place` is a constant."""
    return half_float(word) if place == 0 else high_half_float(word)


def bfloat_at(word: int, place: int) -> Any:
    """The bf16 number in the low or the high half of a word as float32; `place` is a constant."""
    return bits_float(uint32(word << uint32(16)) if place == 0 else uint32(word & uint32(0xFFFF0000)))


def of_byte(d: float, word: int, place: int, less: int, magic: int) -> Any:
    """UNIT d times (a byte of a word - `less`), rounded once; `less` is 0 or 128, and `place` a constant.

    With the byte in the bits of 2^23 (`magic`), the number is 2^23 + 256 n. The correction, d / 256 times
    2^23 + 256 less, is exact: it is 11 bits times 1 or 257. A float32 d is multiplied by the number itself.
    """
    number = bits_float(permute_bytes(word, magic, uint32(0x7404 + 16 * place)))
    if D_WIDE:
        return float32(d * fma(number, float32(0.00390625), float32(-32768.0 - less)))
    part = float32(d * float32(0.00390625 * UNIT))
    return fma(part, number, float32(part * float32(-8388608.0 - 256 * less)))


def scale_bytes(word: int) -> Any:
    """The bytes of "signed" scales; where their lowest bits say whether levels are moved, with `LOWEST`."""
    out = word
    if MOVED:
        out = uint32(word | uint32(0x01010101)) if LOWEST else uint32(word & uint32(0xFEFEFEFE))
    return out


def moved_bit(word: int, place: int) -> Any:
    """1 if the levels of the group are moved whose scale is byte `place` of a word, else 0."""
    return uint32(uint32(word >> uint32(8 * place)) & uint32(1))


def share_of_zero(word: int, place: int) -> Any:
    """The share of `ZERO` that is subtracted from a group's codes: 1, or less if its levels are moved."""
    return bits_float(uint32(uint32(0x3F800000) - uint32(moved_bit(word, place) * uint32(SHARE))))


def moved_by(word: int, place: int) -> Any:
    """What is added to a group's levels, float32."""
    return float32(MOVED) if moved_bit(word, place) != 0 else float32(0.0)


def scale(word: int, place: int, d: int, row: int, magic: int) -> Any:
    """The factor of a group's codes in row g or g + 8 (`row`)."""
    if SCALES == "half":
        out = half_at(word, place)
    elif SCALES == "bfloat":
        out = bfloat_at(word, place)
    elif SCALES == "float":
        out = bits_float(word)
    elif SCALES == "one":
        out = half_at(d, row)
    elif SCALES == "power":
        # 2^(e - 127); for e = 0 it is subnormal, which `fma` handles.
        moved = int32(uint32(permute_bytes(word, uint32(0), uint32(0x0444 + 4096 * place)) >> uint32(1)))
        out = bits_float(uint32(max(moved, int32(0x400000))))
    elif SCALES == "signed":
        out = of_byte(bits_float(d) if D_WIDE else half_at(d, row), scale_bytes(word), place, 128, magic)
    elif SCALES == "nibbles":
        out = of_byte(half_at(d, row), uint32(word & uint32(0x0F0F0F0F)), place, 0, magic)
    else:
        out = of_byte(half_at(d, row), word, place, 0, magic)
    return out


def low(word: int, place: int, dmin: int, row: int, magic: int) -> Any:
    """What is added for each 1 of x: the minimum; with "zero", the negated zero of each code."""
    if MINS == "half":
        out = half_at(word, place)
    elif MINS == "bfloat":
        out = bfloat_at(word, place)
    elif MINS == "float":
        out = bits_float(word)
    elif MINS == "zero":
        out = float32(-half_at(word, place))
    else:
        out = float32(-of_byte(half_at(dmin, row), min_bytes(word), place, 0, magic))
    return out


def min_bytes(word: int) -> Any:
    """The bytes of the minimums; with "nibbles" they share bytes with the scales."""
    return uint32(uint32(word >> uint32(4)) & uint32(0x0F0F0F0F)) if SCALES == "nibbles" else word


def min_code(word: int, place: int, row: int) -> Any:
    """A group's minimum or zero in row g or g + 8 as a word of operand a, in both halves.

    "half" as it is; "zero" negated and in units of the row's codes; bytes as codes of row g.
    """
    if MINS == "half":
        out = permute_bytes(word, uint32(0), uint32(0x3232 if place else 0x1010))
    elif MINS == "zero":
        scaled = mul_fp16x2(word, uint32(Z_ONES[row]))
        out = permute_bytes(scaled, uint32(0), uint32(0x3232 if place else 0x1010))
    else:
        out = permute_bytes(min_bytes(word), uint32(0), uint32(0x4040 + 0x101 * place))
    return out
