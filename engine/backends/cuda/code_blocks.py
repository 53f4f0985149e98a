"""Blocks of packed codes in kernels: bringing their words, taking codes out as operands of the matrix instruction, and their numbers.

`family_codes` describes the layout; `constants` is what it comes to for the functions here, which are parts of kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.ptx import (
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
    permute_bytes,
    registers,
    static,
)
from engine.backends.cuda.words import float32, int32, int64, uint32
from engine.backends.gguf_parts import FP4_VALUES, IQ4_VALUES

if TYPE_CHECKING:
    from engine.backends.cuda.family_codes import CodeFamily

REGIONS = 1
R_WORDS = R_AT = R_FIRST = R_HEADER = R_LANE = (0,)
SCALES = LOWS = TABLE = ""
BITS = GROUPS = 1
MASK, SECOND = 0, 0
TABLE_0 = TABLE_1 = TABLE_2 = TABLE_3 = 0



def _table(name: str) -> tuple[int, ...]:
    """Four words with a byte for each code: "iq4" 128 more than its number; "fp4" the high byte of 2^-14 of it, in fp16."""
    if name == "iq4":
        entries = (np.array(IQ4_VALUES) + 128).astype("<u1")
    elif name == "fp4":
        halves = np.array(FP4_VALUES) / np.float16(2) * np.float16(2.0**-14)
        halves[8:] = -halves[:8]  # with the sign of zero, too
        entries = np.ascontiguousarray((halves.astype(np.float16).view(np.uint16) >> 8).astype("<u1"))
    else:
        entries = np.zeros(16, "<u1")
    return tuple(entries.view("<u4").tolist())


def constants(family: CodeFamily) -> dict[str, Any]:
    """The constants of all kernels of a layout."""
    regions = family.regions
    planes = family.planes
    width, more = planes[0][0], planes[1] if len(planes) > 1 else (0, 0)
    slots = [family.place(width, slot, 0) for slot in range(8)]
    others = [family.place(more[0], slot, 0) if more[0] else (0, 0) for slot in range(8)]
    by_table, low = bool(family.table), (1 << width) - 1
    first_number = next((r.first for r in regions if not r.each_lane), 0)
    scale_words, groups = family.scale_words, family.groups
    places = [_place(family, row, group) for row in range(2) for group in range(groups)]
    d = first_number + (0 if family.scales == "one" else scale_words)
    lows_at = first_number + scale_words
    halves = [(lows_at + (row if groups == 2 else 0), group if groups == 2 else row) for row in range(2) for group in range(groups)]
    bytes_ = [(first_number + row, group + (2 if family.scales == "unsigned" else 0)) for row in range(2) for group in range(groups)]
    lows = halves if family.lows in ("half", "zero") else bytes_
    plain = by_table or family.bits == 8
    offset = 0x8000 | family.zero
    factor = 2.0**14 if family.table == "fp4" else 2.0**24
    return {
        "REGIONS": len(regions), "R_WORDS": tuple(r.words for r in regions), "R_AT": tuple(r.at for r in regions),
        "R_FIRST": tuple(r.first for r in regions), "R_HEADER": tuple(int(r.header) for r in regions),
        "R_LANE": tuple(int(r.each_lane) for r in regions),
        "SPAN": family.span, "SPAN_SHIFT": family.span.bit_length() - 1, "SPAN_BYTES": family.span_bytes,
        "HEADER_BYTES": family.header_bytes, "BLOCK_BYTES": family.block_bytes,
        "BITS": family.bits, "TABLE": family.table, "GROUPS": groups, "STEPS": 4 // groups, "PAIRED": int(family.paired),
        "SCALES": family.scales, "LOWS": family.lows, "ZERO": family.zero,
        "C_WORD": tuple(w for w, _ in slots), "C_RIGHT": tuple(0 if family.bits == 8 else bit for _, bit in slots),
        "C_MORE": tuple((4 if width == 4 else 2) + w for w, _ in others), "C_MORE_RIGHT": tuple(bit - more[1] for _, bit in others),
        "MASK": low * 0x10001, "SECOND": ((1 << more[0]) - 1) * 0x10001 << more[1],
        **{f"TABLE_{i}": word for i, word in enumerate(_table(family.table))},
        "S_WORD": tuple(first_number + w for w, _ in places), "S_PLACE": tuple(p for _, p in places),
        "L_WORD": tuple(w for w, _ in lows), "L_PLACE": tuple(p for _, p in lows), "D_WORD": d, "M_WORD": d + 1,
        # What the sums of x are multiplied with: minus the code of zero, or one.
        "SUM_LOW": (offset if family.zero else 1) * 0x10001,
        "SUM_HIGH": (offset if plain else 0x8000 | 16 * family.zero) * 0x10001 if family.zero else (1 if plain else 16) * 0x10001,
        "LOW_FACTOR": factor, "HIGH_FACTOR": factor if plain else factor / 16,
    }  # fmt: skip


def _place(family: CodeFamily, row: int, group: int) -> tuple[int, int]:
    """Of the scale of row g or g + 8 and a group: its word among those of scales, and which half or byte it is there."""
    if family.scales == "half":
        return (row, group) if family.groups == 2 else (0, row)
    if family.scales == "float":
        return row * family.groups + group, 0
    if family.scales == "one":
        return 0, row
    return (row, group) if family.scale_words == 2 else (0, 2 * row + group)


def fetch(span: int, inner: int, lane: int) -> Any:
    """The 14 words that a lane needs of the block `inner` bytes into a span: 8 of codes, 6 of numbers; those the layout lacks are 0."""
    words = registers(uint32(0), 14)
    for r in static(range(REGIONS)):
        at = int64(span + int64(int32((0 if R_HEADER[r] else inner) + (lane if R_LANE[r] else lane >> 2) * (4 * R_WORDS[r]))) + R_AT[r])
        if R_WORDS[r] == 4:
            if R_LANE[r]:
                words[R_FIRST[r]], words[R_FIRST[r] + 1], words[R_FIRST[r] + 2], words[R_FIRST[r] + 3] = ld_stream(at)
            else:
                words[R_FIRST[r]], words[R_FIRST[r] + 1], words[R_FIRST[r] + 2], words[R_FIRST[r] + 3] = ld_u32x4(at)
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
        words[8], words[9], words[10], words[11], words[12], words[13],
    )  # fmt: skip


def shifted(word: int, right: int) -> Any:
    """To the right, or, by less than nothing, to the left; `right` is known."""
    if right >= 0:
        return uint32(word >> uint32(right))
    return uint32(word << uint32(-right))


def looked_up(four: int) -> Any:
    """The bytes that the four lowest nibbles stand for."""
    index, half = uint32(four & uint32(0x7777)), and_or(uint32(four >> uint32(1)), uint32(0x4444), uint32(0x3210))
    upper = permute_bytes(uint32(TABLE_2), uint32(TABLE_3), index)
    return permute_bytes(permute_bytes(uint32(TABLE_0), uint32(TABLE_1), index), upper, half)


def codes(word: int, right: int, more: int, more_right: int) -> Any:
    """Two fp16 codes of row g, and of row g + 8 (times 16, or as they are): words of operand a."""
    if TABLE == "fp4":
        four = looked_up(shifted(word, right))
        first, second = permute_bytes(four, uint32(0), uint32(0x2404)), uint32(four & uint32(0xFF00FF00))
    elif BITS == 8 or TABLE != "":
        four = word if BITS == 8 else looked_up(shifted(word, right))
        first, second = uint32(four & uint32(0xFF00FF)), permute_bytes(four, uint32(0), uint32(0x4341))
    else:
        four = shifted(word, right)
        first, second = uint32(four & uint32(MASK)), uint32(four & uint32(MASK << 4))
        if SECOND != 0:
            four = shifted(more, more_right)
            first, second = and_or(four, uint32(SECOND), first), and_or(four, uint32(SECOND << 4), second)
    return first, second


def half_at(word: int, place: int) -> Any:
    """The low or the high half of a word; `place` is known."""
    return half_float(word) if place == 0 else high_half_float(word)


def byte_at(word: int, place: int) -> Any:
    """A byte of a word as float32: the low bits of 2^23, then less that. `place` is known."""
    return fma(bits_float(permute_bytes(word, uint32(0x4B000000), uint32(0x7540 + place))), float32(1.0), float32(-8388608.0))


def scale(word: int, place: int, d: int, row: int) -> Any:
    """A group's factor of its codes in row g or g + 8 (`row`)."""
    if SCALES == "half":
        out = half_at(word, place)
    elif SCALES == "float":
        out = bits_float(word)
    elif SCALES == "one":
        out = half_at(d, row)
    elif SCALES == "power":
        half = uint32(uint32(uint32(word >> uint32(8 * place)) & uint32(255)) >> uint32(1))
        out = bits_float(uint32(uint32(half + uint32(64)) << uint32(23)))
    elif SCALES == "signed":
        out = float32(half_at(d, row) * fma(byte_at(word, place), float32(1.0), float32(-128.0)))
    elif SCALES == "nibbles":
        out = float32(half_at(d, row) * byte_at(uint32(word & uint32(0x0F0F0F0F)), place))
    else:
        out = float32(half_at(d, row) * byte_at(word, place))
    return out


def rest_of_power(word: int, place: int) -> Any:
    """2^(e - 127) is `scale` times this, two normal numbers."""
    e = uint32(uint32(word >> uint32(8 * place)) & uint32(255))
    return bits_float(uint32(uint32(e - uint32(e >> uint32(1)) + uint32(63)) << uint32(23)))


def low(word: int, place: int, dmin: int, row: int) -> Any:
    """What is added for each 1 of x: the minimum; or, of "zero", what is taken off each code, negative."""
    if LOWS == "half":
        out = half_at(word, place)
    elif LOWS == "zero":
        out = float32(-half_at(word, place))
    elif SCALES == "nibbles":
        out = float32(-half_at(dmin, row) * byte_at(uint32(uint32(word >> uint32(4)) & uint32(0x0F0F0F0F)), place))
    else:
        out = float32(-half_at(dmin, row) * byte_at(word, place))
    return out
