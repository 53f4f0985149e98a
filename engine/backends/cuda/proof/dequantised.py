"""Dequantises packed matrices with torch, for GPUs that do not run the kernels right.

It is slow but correct. See `layouts.codes` and `layouts.plain` for the layouts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from engine.backends.cuda.layouts.codes import BLOCK, FP4_BITS, FP4_SIGNS, CodeLayout, Region, table_index
from engine.backends.cuda.layouts.layout import ROWS
from engine.backends.cuda.layouts.plain import Fp8, Plain
from engine.backends.cuda.weight import CudaWeight
from engine.backends.gguf_blocks.quants import FP4_LEVELS

_PLAIN = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_NUMBERS = {"half": torch.float16, "bfloat": torch.bfloat16, "float": torch.float32}


def tiles_of(weight: CudaWeight) -> torch.Tensor:
    """The tiles of a matrix, uint8 (tiles, bytes), a view."""
    return weight.data[: weight.nbytes].view(weight.tiles, weight.tile_bytes)


def dequantised(weight: CudaWeight, tiles: torch.Tensor) -> torch.Tensor:
    """Some of a matrix's `tiles_of` as float32 (16 rows each, K). Rows past the matrix's last are zeros."""
    weight_layout = weight.weight_layout
    if isinstance(weight_layout, Plain):
        found = tiles.contiguous().view(_PLAIN[weight_layout.name]).view(len(tiles) * ROWS, -1).float()
    elif isinstance(weight_layout, Fp8):
        found = _eight_bits(weight_layout, tiles)
    else:
        assert isinstance(weight_layout, CodeLayout)
        found = _codes_and_scales(weight_layout, tiles)
    return found[:, : weight.shape[1]]


def _eight_bits(weight_layout: Fp8, tiles: torch.Tensor) -> torch.Tensor:
    """(tiles, bytes) to (rows, columns), including the padding columns of a block."""
    count = len(tiles)
    blocks = next(
        b for b in range(1, tiles.shape[1] // 1024 + 1) if weight_layout.tile_bytes(64 * b) == tiles.shape[1]
    )
    codes = tiles[:, : 1024 * blocks].reshape(count, 2 * blocks, 8, 4, 2, 2, 2, 2)
    # (tile, chunk, g, t, half, piece, column, pair) back to (tile, half, g, chunk, t, piece, pair, column)
    codes = codes.permute(0, 4, 2, 1, 3, 5, 7, 6).reshape(count * ROWS, 64 * blocks)
    values = codes.view(torch.float8_e4m3fn).float()
    scales = tiles[:, 1024 * blocks :].contiguous().view(torch.float32).view(count, -1, ROWS)
    each = scales.transpose(1, 2).reshape(count * ROWS, -1) / 256
    return values * each.repeat_interleave(weight_layout.unit, 1)[:, : 64 * blocks]


def _codes_and_scales(weight_layout: CodeLayout, tiles: torch.Tensor) -> torch.Tensor:
    """(tiles, bytes) to (rows, columns), including the padding columns of a span."""
    count, spans = len(tiles), tiles.shape[1] // weight_layout.span_bytes
    whole = tiles.view(count, spans, weight_layout.span_bytes)
    header = whole[..., : weight_layout.header_bytes]
    inner = whole[..., weight_layout.header_bytes :].reshape(
        count, spans * weight_layout.span, weight_layout.block_bytes
    )
    parts = [_region(region, header if region.header else inner) for region in weight_layout.regions]
    planes = 2 * len(weight_layout.planes) if weight_layout.bits == 8 else len(weight_layout.planes)
    number = _numbers(weight_layout, _codes(weight_layout, parts[:planes]))
    rest = iter(parts[planes:])
    columns = number.shape[1]
    scale, low = torch.ones((), device=tiles.device), torch.zeros((), device=tiles.device)
    if weight_layout.scales in _NUMBERS:
        raw = next(rest)
        if weight_layout.scale_words == 8:  # two regions, one for each row
            rows = [each.view(count, each.shape[1], 8, -1) for each in (raw, next(rest))]
            raw = torch.stack(rows, 3).view(count, raw.shape[1], -1)
        scale = _spread(_by_row(raw, _NUMBERS[weight_layout.scales]), columns)
    elif weight_layout.scales != "one":
        each = _by_row(next(rest), torch.uint8)
        if weight_layout.scales == "unsigned":
            each, mins = each.chunk(2, -1)
            low = _spread(mins, columns)
        scale = _spread(each, columns)
    if weight_layout.mins in (*_NUMBERS, "zero"):
        low = _spread(_by_row(next(rest), _NUMBERS.get(weight_layout.mins, torch.float16)), columns)
    if weight_layout.scales == "nibbles":
        scale, low = torch.remainder(scale, 16), torch.floor(scale / 16)
    if weight_layout.moved:
        moved = torch.remainder(scale, 2)
        number, scale = number + weight_layout.moved * moved, scale - moved + weight_layout.lowest
    if weight_layout.scales == "signed":
        scale = (scale - 128) * weight_layout.unit
    if weight_layout.scales == "power":
        return (number.double() * torch.exp2(scale.double() - 127)).float()
    if weight_layout.scales in ("signed", "unsigned", "nibbles", "one"):
        kind = torch.float32 if weight_layout.wide else torch.float16
        scale = scale * _spread(_by_row(next(rest), kind), columns)
    if weight_layout.mins == "sub":
        return number * scale - low * _spread(_by_row(next(rest), torch.float16), columns)
    return (number - low) * scale if weight_layout.mins == "zero" else number * scale + low


def _region(region: Region, parts: torch.Tensor) -> torch.Tensor:
    return parts[..., region.at : region.at + region.size].contiguous()


def _codes(weight_layout: CodeLayout, planes: list[torch.Tensor]) -> torch.Tensor:
    """Bit planes (tiles, blocks, bytes) to codes (rows, columns), int32."""
    words = [plane.view(torch.int32).view(*plane.shape[:2], 32, -1) for plane in planes]
    if weight_layout.bits == 8:
        words = [torch.cat(words, -1)]
    count, blocks = words[0].shape[:2]
    slots = []
    for slot in range(8):
        for row in range(2):
            pair = [torch.zeros((), dtype=torch.int32, device=planes[0].device)] * 2
            for (width, first), plane in zip(weight_layout.planes, words, strict=True):
                word, bit = weight_layout.place(width, slot, row)
                for e in range(2):
                    pair[e] = (
                        pair[e]
                        | _code(weight_layout, plane[..., word], width, slot % 2 * 2 + row, bit, e) << first
                    )
            slots.append(torch.stack(pair, -1))
    outer, inner = (2, 4) if weight_layout.paired else (4, 2)
    found = torch.stack(slots).view(outer, inner, 2, count, blocks, 8, 4, 2)
    # (outer, inner, row, tile, block, g, t, pair) to (tile, row, g, block, outer, t, inner, pair)
    return found.permute(3, 2, 5, 4, 0, 6, 1, 7).reshape(count * ROWS, blocks * BLOCK)


def _code(
    weight_layout: CodeLayout, word: torch.Tensor, width: int, which: int, bit: int, e: int
) -> torch.Tensor:
    """The code of a slot's column `e` in a word of a plane."""
    if weight_layout.table == "fp4":
        return word >> (FP4_BITS[which] + 16 * e) & 7 | (word >> (FP4_SIGNS[which] + 16 * e) & 1) << 3
    return word >> (bit + (8 if weight_layout.table == "int8" else 16) * e) & ((1 << width) - 1)


def _numbers(weight_layout: CodeLayout, codes: torch.Tensor) -> torch.Tensor:
    """The numbers that codes stand for, float32, before any scale."""
    if not weight_layout.table:
        return (codes - weight_layout.zero).float()
    return _table(weight_layout.levels).to(codes.device)[codes.long()]


@cache
def _table(levels: tuple[int, ...]) -> torch.Tensor:
    """The numbers of "int8" by their index, or of "fp4", which has no `levels`."""
    if not levels:
        return torch.tensor(FP4_LEVELS, dtype=torch.float32) / 2
    out = torch.empty(16)
    for code in range(16):
        out[int(table_index(code))] = float(levels[code % len(levels)])
    return out


def _by_row(raw: torch.Tensor, kind: Any) -> torch.Tensor:
    """Numbers of rows g and g + 8, (tiles, blocks or spans, bytes), to float32 (rows, blocks or spans, n)."""
    count, parts = raw.shape[:2]
    values = raw.view(kind).view(count, parts, 8, 2, -1)
    return values.permute(0, 3, 2, 1, 4).reshape(count * ROWS, parts, -1).float()


def _spread(values: torch.Tensor, columns: int) -> torch.Tensor:
    """(rows, parts, n) to (rows, columns)."""
    each = values.reshape(len(values), -1)
    return each.repeat_interleave(columns // each.shape[1], 1)
