"""Packing of the GPU's layouts of codes that only move bits, by a kernel of the CPU backend.

A layout's `pack` says in NumPy where each number goes, and `bit_moves` finds out from it where each bit goes,
as `engine.backends.cpu.bit_moves` does. A word of a tile has bits of its rows g and g + 8 alone, and lies at
equal distances for g = 0 .. 7. The kernel `repack_words` makes it for all g of two tiles at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.bit_moves import term_table
from engine.backends.cpu.codebook_codes import LookedUp
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kernels.repack import TERM_BYTES, W_FIELDS, WORD_FIELD_BYTES
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cuda.layouts.codes import BLOCK, CodeLayout
from engine.backends.cuda.layouts.gguf import code_parts
from engine.backends.cuda.layouts.grouped import kept_parts
from engine.backends.cuda.layouts.layout import ROWS, Bytes, WeightLayout
from engine.backends.gguf_blocks.block_type import BlockType, Parts
from engine.backends.gguf_blocks.table import PACKED_BLOCKS
from engine.backends.packing.bit_sources import Words, bit_sources, same_by_moves, terms, word_offsets
from engine.backends.packing.kept_numbers import KeptNumbers, Numbers
from engine.lazy_dataclass import dataclass

PAIR = 2 * ROWS
"""Rows that are packed at once."""
_STRETCH = 64
"""Bytes of a row that are read at once, at least."""
_APART = ROWS // 2
"""Rows of a tile whose words lie in other places."""


@dataclass(frozen=True)
class BitMoves:
    """How `repack_words` packs stretches of `read_bytes` bytes of 16 rows each into `out_bytes` bytes."""

    read_bytes: int
    out_bytes: int
    fields: Words
    """(fields, 5)."""
    terms: npt.NDArray[np.int32]
    """(terms, 3), whose addresses `fields` has."""
    columns: int
    """Columns of a stretch."""
    file_bytes: int
    """Bytes of a stretch of one row in the file."""
    before: LookedUp | KeptNumbers | None = None
    """What is done to the file's bytes before they are read."""

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """`WeightLayout.pack` for `rows`, a multiple of 32."""
        if self.before is not None:
            raw = self.before.prepared(raw)
        stretches, row_bytes = columns // self.columns, raw.size // rows
        out = np.empty(rows // ROWS * stretches * self.out_bytes, np.uint8)
        own = np.array(word_offsets(self.read_bytes), np.int64)
        offsets = np.concatenate([own, own + _APART * row_bytes])
        scratch = aligned(2 * 4 * ROWS * len(own))
        args: Words = np.array(
            [
                raw.ctypes.data, row_bytes, rows // PAIR, stretches, self.read_bytes, len(offsets),
                offsets.ctypes.data, out.ctypes.data, self.out_bytes, stretches * self.out_bytes,
                len(self.fields), self.fields.ctypes.data,
            ],
            np.int64,
        )  # fmt: skip
        assert len(args) == W_FIELDS + 1
        _kernel()(args.ctypes.data, 0, 0, scratch.ctypes.data)
        return out


@cache
def bit_moves(weight_layout: WeightLayout, columns: int) -> BitMoves | None:
    """How rows of this many columns are packed; None if more must be done."""
    if not isinstance(weight_layout, CodeLayout):
        return None
    each, size = weight_layout.file_columns, weight_layout.file_bytes
    step = math.lcm(BLOCK * weight_layout.span, each)
    if columns % step:
        return None
    while step // each * size < _STRETCH and columns % (2 * step) == 0:
        step *= 2
    return _found(weight_layout, step)


@cache
def _found(layout: CodeLayout, columns: int) -> BitMoves | None:
    """For stretches of this many columns."""
    block, before = _WITH_CODEBOOK.get(layout.types[0]), _kept(layout)
    if block is not None:
        before = LookedUp(block, partial(_pack_parts, layout, block))
    packer = before or layout
    size = columns // layout.file_columns * packer.file_bytes

    def packed(raw: Bytes) -> Bytes:
        made = packer.pack(raw.reshape(-1), ROWS * len(raw), columns)
        return made.reshape(len(raw), -1)

    bits = 8 * ROWS * size
    moves = _moves(*bit_sources(packed, bits), size, columns)

    def moved(raw: Bytes) -> Bytes:
        assert moves is not None
        return moves.pack(raw.reshape(-1), ROWS * len(raw), columns)

    if moves is None or not same_by_moves(packed, moved, bits):
        return None
    return replace(moves, file_bytes=columns // layout.file_columns * layout.file_bytes, before=before)


_WITH_CODEBOOK = {block.name: block for block in PACKED_BLOCKS if block.codebook}


def _pack_parts(layout: CodeLayout, block: BlockType, parts: Parts, rows: int, columns: int) -> Bytes:
    return layout.pack_parts(code_parts(block, parts, rows, columns), rows, columns)


def _kept(layout: CodeLayout) -> LookedUp | KeptNumbers | None:
    if layout.keep is None:
        return None
    unit = layout.file_columns
    pack = partial(_pack_kept, layout)
    return KeptNumbers(unit, layout.file_bytes - unit, layout.keep, pack)


def _pack_kept(
    layout: CodeLayout, codes: Bytes, numbers: Sequence[Numbers], rows: int, columns: int
) -> Bytes:
    return layout.pack_parts(kept_parts(codes, numbers, rows), rows, columns)


def _moves(sources: Words, flips: Bytes, size: int, columns: int) -> BitMoves | None:
    """From what `bit_sources` gives for a tile."""
    mine, flip = sources.reshape(-1, 32), flips.reshape(-1, 32)
    rows, inside = np.divmod(mine, 8 * size)
    lanes = np.where(mine < 0, -1, rows % _APART)
    lane = lanes.max(axis=1)
    if (lane < 0).any() or (np.where(mine < 0, lane[:, None], lanes) != lane[:, None]).any():
        return None  # a word without a source, or with those of other rows
    own = np.where(mine < 0, -1, rows // _APART * 8 * size + inside)
    alike: defaultdict[bytes, list[list[int]]] = defaultdict(lambda: [[] for _ in range(_APART)])
    for word, pattern in enumerate(np.hstack([own, flip])):
        alike[pattern.tobytes()][lane[word]].append(word)
    fields: list[tuple[int, ...]] = []
    found: list[tuple[int, int, int]] = []
    for places in alike.values():
        if len({len(each) for each in places}) > 1:
            return None
        for words in zip(*places, strict=True):
            steps = set(np.diff(words).tolist())
            if len(steps) > 1:
                return None
            mask = int.from_bytes(np.packbits(flip[words[0]], bitorder="little").tobytes(), "little")
            first = len(found)
            found += terms(own[words[0]].tolist(), size)
            fields.append((4 * words[0], mask, TERM_BYTES * first, len(found) - first, 4 * steps.pop()))
    table, array = term_table(found), np.array(fields, np.int64).reshape(-1, WORD_FIELD_BYTES // 8)
    array[:, 2] += table.ctypes.data
    return BitMoves(size, 4 * len(mine), array, table, columns, size)


@cache
def _kernel() -> Callable[[int, int, int, int], None]:
    for _ in KERNELS.compile(["repack_words"]):
        pass
    return KERNELS.function("repack_words")
