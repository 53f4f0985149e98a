"""Packing of the layouts that only move bits: types of GGUF files, 8-bit floats and plain numbers.

A layout's `pack` says in NumPy where each number goes. Where every bit of the result is one bit of the file's
rows, as it is or inverted, or always the same, `bit_moves` finds out which by packing a few patterns. The
kernel `repack` then does the same for vectors of 16 rows, about twenty times as fast. Where codes are looked
up (`codebook_codes`) or numbers become others (`kept_numbers`), that is done first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.codebook_codes import LookedUp
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.kernels.repack import ARGUMENTS, FIELD_BYTES, TERM_BYTES
from engine.backends.cpu.layouts.blocks import BlockLayout
from engine.backends.cpu.layouts.grouped import Affine, Grouped
from engine.backends.cpu.layouts.interleave import tile_places
from engine.backends.cpu.layouts.layout import Bytes, WeightLayout
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.packing.bit_sources import Words, bit_sources, same_by_moves, terms, word_offsets
from engine.backends.packing.kept_numbers import KeptNumbers
from engine.lazy_dataclass import dataclass

_STRETCH = 64
"""Bytes of a row that are read at once, at least: 16 rows may share a set of the first-level cache."""
_WIDTHS = (4, 2, 1)
"""Bytes of a lane of a field."""


@dataclass(frozen=True)
class BitMoves:
    """How `repack` packs stretches of `read_bytes` bytes of 16 rows each into `out_bytes` bytes."""

    read_bytes: int
    out_bytes: int
    offsets: npt.NDArray[np.int32]
    """Where the words of a stretch are."""
    fields: tuple[Words, ...]
    """(fields, 4) for lanes of 4, 2 and 1 bytes."""
    terms: npt.NDArray[np.int32]
    """(terms, 3), whose addresses `fields` has."""
    columns: int
    """Features of a stretch."""
    before: LookedUp | KeptNumbers | None = None
    """What is done to the file's bytes before they are read."""

    def pack(self, raw: Bytes, rows: int, out: Bytes, places: Words, panel_bytes: int) -> None:
        """Pack `rows` (a multiple of 16) of equally many blocks as the file holds them into `out`.

        `places` are those of the tiles, as `tile_places` gives them for panels of `panel_bytes` bytes.
        """
        if self.before is not None:
            raw = self.before.prepared(raw)
        row_bytes, scratch = raw.size // rows, aligned(64 * len(self.offsets))
        targets = np.ascontiguousarray(places + np.array([out.ctypes.data, 0, out.ctypes.data]))
        fields = [number for each in self.fields for number in (len(each), each.ctypes.data)]
        args: Words = np.array(
            [
                raw.ctypes.data, row_bytes, rows // LANES, row_bytes // self.read_bytes, self.read_bytes,
                len(self.offsets), self.offsets.ctypes.data, targets.ctypes.data, self.out_bytes,
                panel_bytes // self.out_bytes, *fields,
            ],
            np.int64,
        )  # fmt: skip
        assert len(args) == ARGUMENTS
        _kernel()(args.ctypes.data, 0, 0, scratch.ctypes.data)

    def packed(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """The same tiles one after another, in a new array."""
        tiles, size = rows // LANES, columns // self.columns * self.out_bytes
        out = np.empty(tiles * size, np.uint8)
        self.pack(raw, rows, out, tile_places(0, tiles, tiles, 1, self.out_bytes, size), self.out_bytes)
        return out


class Packer(Protocol):
    """What packs rows, as a `WeightLayout` does."""

    @property
    def unit(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    def __hash__(self) -> int: ...
    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes: ...


@cache
def bit_moves(weight_layout: WeightLayout, blocks: int) -> BitMoves | None:
    """How rows of this many blocks are packed; None if more must be done."""
    before: LookedUp | KeptNumbers | None = None
    if isinstance(weight_layout, BlockLayout) and weight_layout.block.codebook:
        before = LookedUp(weight_layout.block, weight_layout.pack_parts)
    elif isinstance(weight_layout, Grouped | Affine):
        before = weight_layout.kept
    packer: Packer = before or weight_layout
    together = 1
    while together * packer.file_bytes < _STRETCH and blocks % (2 * together) == 0:
        together *= 2
    found = _found(packer, together)
    return found and replace(found, before=before)


@cache
def _found(packer: Packer, blocks: int) -> BitMoves | None:
    """For stretches of this many blocks."""
    size, columns = blocks * packer.file_bytes, blocks * packer.unit

    def packed(raw: Bytes) -> Bytes:
        rows = len(raw) * LANES
        return packer.pack(raw.reshape(-1), rows, columns).reshape(len(raw), -1)

    bits = 8 * LANES * size
    moves = _moves(*bit_sources(packed, bits), size, columns)

    def moved(raw: Bytes) -> Bytes:
        assert moves is not None
        return moves.packed(raw.reshape(-1), len(raw) * LANES, columns)

    return moves if moves and same_by_moves(packed, moved, bits) else None


def _moves(sources: Words, flips: npt.NDArray[np.uint8], size: int, columns: int) -> BitMoves | None:
    """From what `bit_sources` gives for a tile."""
    fields: dict[int, list[tuple[int, int, int, int]]] = {width: [] for width in _WIDTHS}
    found: list[tuple[int, int, int]] = []
    at, end, lanes = 0, len(sources) // 8, np.arange(LANES)[:, None]
    while at < end:
        for width in _WIDTHS:
            if at + width * LANES > end:
                continue
            mine = sources[8 * at : 8 * (at + width * LANES)].reshape(LANES, 8 * width)
            own = np.where(mine < 0, -1, mine - 8 * size * lanes)
            flip = flips[8 * at : 8 * (at + width * LANES)].reshape(LANES, 8 * width)
            if (own == own[0]).all() and (flip == flip[0]).all() and (own < 8 * size).all():
                break
        else:
            return None
        first = len(found)
        found += terms(own[0].tolist(), size)
        inverted = int.from_bytes(np.packbits(flip[0], bitorder="little").tobytes(), "little")
        fields[width].append((at, inverted, TERM_BYTES * first, len(found) - first))
        at += width * LANES
    table = term_table(found)
    arrays = [np.array(fields[width], np.int64).reshape(-1, FIELD_BYTES // 8) for width in _WIDTHS]
    for each in arrays:
        each[:, 2] += table.ctypes.data
    offsets = np.array(word_offsets(size), np.int32)
    return BitMoves(size, end, offsets, tuple(arrays), table, columns)


def term_table(found: list[tuple[int, int, int]]) -> npt.NDArray[np.int32]:
    """Terms as the kernels read them, (terms, 3)."""
    table = np.array(found, np.int64).reshape(-1, 3)
    table[:, 0] *= 4 * LANES
    return table.astype(np.uint32).view(np.int32)


@cache
def _kernel() -> Callable[[int, int, int, int], None]:
    for _ in KERNELS.compile(["repack"]):
        pass
    return KERNELS.function("repack")
