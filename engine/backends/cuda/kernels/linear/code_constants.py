"""The constants that specialise kernels for a layout of packed codes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from engine.backends.cuda.layouts.codes import WIDTH_OF, WORDS, CodeLayout, table_index

WAYS = 5
"""The maximum number of ways (`_ways`) of a layout."""


def _table(levels: tuple[int, ...]) -> tuple[int, ...]:
    """The lookup table of "int8": four words with one byte, level + 128, for each index.

    See `looked_up` for the bytes that are inverted.
    """
    entries = np.zeros(16, np.uint8)
    if levels:
        entries[table_index(np.arange(16))] = np.resize(levels, 16) + 128
        assert (entries[:8] >> 7 == entries[8:] >> 7).all()
        entries[8:] ^= np.where(entries[:8] >> 7, np.uint8(255), np.uint8(0))
    return tuple(entries.view("<u4").tolist())


@cache
def constants(weight_layout: CodeLayout) -> dict[str, Any]:
    """The constants of all kernels of a layout."""
    regions = weight_layout.regions
    planes = weight_layout.planes
    width, more = planes[0][0], planes[1] if len(planes) > 1 else (0, 0)
    slots = [weight_layout.place(width, slot, 0) for slot in range(8)]
    others = [weight_layout.place(more[0], slot, 0) if more[0] else (0, 0) for slot in range(8)]
    by_table, low = bool(weight_layout.table), (1 << width) - 1
    first_number = next((r.first for r in regions if not r.each_lane), 0)
    scale_words, groups = weight_layout.scale_words, weight_layout.groups
    places = [_place(weight_layout, row, group) for row in range(2) for group in range(groups)]
    d = first_number + (0 if weight_layout.scales == "one" else scale_words)
    d = min(d, WORDS - 2)  # with eight words of scales there are no d and dmin, which are not used then
    mins = _places_of_mins(weight_layout, first_number)
    plain = by_table or weight_layout.bits == 8
    offset = 0x8000 | weight_layout.zero
    high_one = 0x8001 if plain else 0x8010
    factor = 2.0**14 if weight_layout.table == "fp4" else 2.0**24
    return {
        "REGIONS": len(regions), "R_WORDS": tuple(r.words for r in regions),
        "R_AT": tuple(r.at for r in regions),
        "R_FIRST": tuple(r.first for r in regions), "R_HEADER": tuple(int(r.header) for r in regions),
        "R_LANE": tuple(int(r.each_lane) for r in regions),
        "SPAN": weight_layout.span, "SPAN_SHIFT": weight_layout.span.bit_length() - 1,
        "SPAN_BYTES": weight_layout.span_bytes,
        "HEADER_BYTES": weight_layout.header_bytes, "BLOCK_BYTES": weight_layout.block_bytes,
        "BITS": weight_layout.bits, "TABLE": weight_layout.table, "GROUPS": groups, "STEPS": 4 // groups,
        "PAIRED": int(weight_layout.paired),
        "SCALES": weight_layout.scales, "UNIT": weight_layout.unit, "MINS": weight_layout.mins,
        "ZERO": weight_layout.zero, "MOVED": weight_layout.moved, "LOWEST": weight_layout.lowest,
        "D_WIDE": int(weight_layout.wide), "SHARE": _share(weight_layout),
        "SUMS": int(weight_layout.zero > 0 or weight_layout.mins in ("bfloat", "float")),
        "C_WORD": tuple(w for w, _ in slots), "C_RIGHT": tuple(0 if weight_layout.bits == 8 else bit for _,
        bit in slots),
        "C_MORE": tuple((4 if width == 4 else 2) + w for w, _ in others),
        "C_MORE_RIGHT": tuple(bit - more[1] for _, bit in others),
        "MASK": low * 0x10001, "SECOND": ((1 << more[0]) - 1) * 0x10001 << more[1],
        **{f"TABLE_{i}": word for i, word in enumerate(_table(weight_layout.levels))},
        "S_WORD": tuple(first_number + w for w, _ in places), "S_PLACE": tuple(p for _, p in places),
        "L_WORD": tuple(w for w, _ in mins), "L_PLACE": tuple(p for _, p in mins), "D_WORD": d,
        "M_WORD": d + 1,
        # What the sums of x are multiplied by: minus the code of zero, or one.
        "SUM_LOW": (offset if weight_layout.zero else 1) * 0x10001,
        "SUM_HIGH": 0x10001
        * ((offset if plain else 0x8000 | 16 * weight_layout.zero) if weight_layout.zero
        else (1 if plain else 16)),
        "LOW_FACTOR": factor, "HIGH_FACTOR": factor if plain else factor / 16,
        # Minus the smallest numbers of rows g and g + 8; times a group's zeros they give zeros in units of
        # codes.
        "Z_ONES": (0x80018001, high_one * 0x10001) if groups == 2 else (0x8001 | high_one << 16,) * 2,
        **_ways(weight_layout),
    }  # fmt: skip


def _share(weight_layout: CodeLayout) -> int:
    """By how much the bits of 1 exceed those of the share of `zero` that is left where levels are moved."""
    if not weight_layout.moved:
        return 0
    share = np.float32(1 - weight_layout.moved / weight_layout.zero)
    return int(np.float32(1).view(np.uint32)) - int(share.view(np.uint32))


def _ways(weight_layout: CodeLayout) -> dict[str, Any]:
    """How lanes address a tile, one entry for each way in which lanes divide a region among them.

    Gives the way of each region and the bytes between lanes. `W_INNER`: whether the address moves with the
    first block of two in a span of four.
    """
    kinds = [(int(r.header), int(r.each_lane), r.words) for r in weight_layout.regions]
    ways = sorted(set(kinds))
    assert len(ways) <= WAYS
    return {
        "WAY_COUNT": len(ways), "R_WAY": tuple(ways.index(kind) for kind in kinds),
        "W_LANE": tuple(lane for _, lane, _ in ways),
        "W_BYTES": tuple(4 * words for _, _, words in ways),
        "W_INNER": tuple(int(weight_layout.span > 2 and not header) for header, _, _ in ways),
        "IN_HEADER": tuple(int(any(r.header and r.first <= w < r.first + r.words
        for r in weight_layout.regions)) for w in range(WORDS)),
    }  # fmt: skip


def _places_of_mins(weight_layout: CodeLayout, first_number: int) -> list[tuple[int, int]]:
    """The word and the place in it of each group's minimum, those of row g first."""
    groups, both = weight_layout.groups, weight_layout.groups == 2
    each = [(row, group) for row in range(2) for group in range(groups)]
    at = first_number + weight_layout.scale_words
    if weight_layout.mins == "float":
        return [(at + row * groups + group, 0) for row, group in each]
    if weight_layout.mins in (*WIDTH_OF, "zero"):
        return [(at + row, group) if both else (at, row) for row, group in each]
    second = 2 if weight_layout.scales == "unsigned" else 0
    return [(first_number + row, group + second) for row, group in each]


def _place(weight_layout: CodeLayout, row: int, group: int) -> tuple[int, int]:
    """The word of the scale of row g or g + 8 and a group, and its half or byte in the word."""
    if weight_layout.scales in ("half", "bfloat"):
        return (row, group) if weight_layout.groups == 2 else (0, row)
    if weight_layout.scales == "float":
        return row * weight_layout.groups + group, 0
    if weight_layout.scales == "one":
        return 0, row
    return (row, group) if weight_layout.scale_words == 2 else (0, 2 * row + group)
