"""Matrices of small integer codes, packed for tensor cores: the layout, and how it is packed.

A tile (16 rows) is a run of spans of 1, 2 or 4 blocks; a block is 64 columns. A span is a header (numbers of
the whole span), then its blocks: bit planes of the codes, then the numbers of the block. Lane (g, t) = (lane
/ 4, lane % 4) of a warp holds rows g and g + 8 of a tile. Slot j (0 .. 7) of a block is four codes of a lane:
two adjacent columns of each of its rows, as the matrix instruction needs them in operand a (its step j / 2,
words 2 (j % 2) and 2 (j % 2) + 1). The first of the two columns is
  32 (j / 4) + 8 t + 2 (j % 4)   if scales apply to 32 columns or more (`paired`: 16 bytes of x, two steps),
  16 (j / 2) + 4 t + 2 (j % 2)   if they apply to 16.

A plane of w bits (4, 2, 1) has 128 w bytes: `w` words a lane. In each half of a word (low: the first column)
a slot's row g starts at some bit, and row g + 8 four bits above. A masked code is a subnormal fp16 number, n
2^-24, in row g + 8 times 16: it needs no conversion, and the factors are applied at the end. Codes of 8 bits
are one plane of bytes, two loads of four words. Codes of "int8" take half a word for a slot, whose nibbles
are looked up. The bits of "fp4" codes are placed so that shifts make fp16 of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.layouts.layout import ROWS, Bytes
from engine.lazy_dataclass import dataclass

BLOCK = 64
"""Columns of a block."""
WORDS = 16
"""The maximum number of words that a lane holds of a block: 8 of codes, then 8 of numbers."""
_NUMBERS = 8
"""The first word of numbers."""
WIDTH_OF = {"half": 1, "bfloat": 1, "float": 2}
"""For each kind of number that a group has: the words of two, those of rows g and g + 8."""
_PLANES = {
    2: ((2, 0),),
    3: ((2, 0), (1, 2)),
    4: ((4, 0),),
    5: ((4, 0), (1, 4)),
    6: ((4, 0), (2, 4)),
    8: ((8, 0),),
}
"""For each width its planes: their bits, and the first bit of the code in them."""

FP4_BITS, FP4_SIGNS = (9, 6, 0, 3), (15, 12, 14, 13)
"""For codes of "fp4" in half a word (rows g, g + 8 of the first slot, then of the second): the lowest of
their three bits, and their sign bit.
"""

Numbers = npt.NDArray[Any]


def table_index(codes: Any) -> Any:
    """The table index of "int8" codes 0 .. 15 (one, or two in two bytes).

    Bits 2 and 3 are swapped, so that entries i and i + 8 have the same sign.
    """
    return (codes & 0x303) | (codes >> 1 & 0x404) | (codes << 1 & 0x808)


@dataclass(frozen=True)
class CodeParts:
    """Rows taken apart: codes uint8 (N, K); scales and mins (N, K / group); d and dmin (N, K / 256).

    scales and mins are bytes, fp16 or bf16 as uint16, or float32; d and dmin are fp16 as uint16, or d is
    float32.
    """

    codes: Bytes
    scales: Numbers | None = None
    mins: Numbers | None = None
    d: Numbers | None = None
    dmin: Numbers | None = None


@dataclass(frozen=True)
class Region:
    """Some words of a block or of a span's header: `words` (1, 2, 4) for each lane (`each_lane`) or each g.

    They lie `at` bytes from the start and become the words from `first` on of the `WORDS`.
    """

    words: int
    at: int
    first: int
    header: bool = False
    each_lane: bool = False

    @property
    def size(self) -> int:
        """Bytes of the region."""
        return (128 if self.each_lane else 32) * self.words


@dataclass(frozen=True)
class CodeLayout:
    """A `WeightLayout` of codes of `bits` bits.

    `group`: columns per scale; `span`: blocks per span. `scales`: "half", "bfloat" or "float", a number for
    each group; "signed", "unsigned" and "nibbles", a byte for each group, times the span's d; "power", a
    byte e: 2^(e - 127); "one", the span's d alone. `mins`: "" none; "half", "bfloat" or "float", a number
    that is added; "zero", fp16, subtracted from the codes; "sub", bytes times the span's dmin, subtracted.
    `zero`: a code n stands for n - `zero`. `table`: the numbers that codes of 4 bits stand for, "fp4" or
    "int8", which are `levels` (8 or 16; `zero` is then 128, that of the table's bytes). `unit`: a power
    of two by which d of "signed" scales is multiplied. `moved` and `lowest` are as in `BlockType`. If
    `wide`, the d of "signed" scales is float32. What `split` takes has `file_bytes` bytes for every
    `file_columns` columns of a row; if those are codes, one to a byte, and then numbers, `keep` maps the
    bytes of B blocks' numbers to the two that are kept of each.
    """

    name: str
    types: tuple[str, ...]
    bits: int
    split: Callable[[Bytes, int, int], CodeParts]
    file_columns: int
    file_bytes: int
    group: int = 32
    scales: str = "half"
    mins: str = ""
    zero: int = 0
    span: int = 1
    table: str = ""
    levels: tuple[int, ...] = ()
    unit: float = 1.0
    moved: int = 0
    lowest: int = 0
    wide: bool = False
    keep: Callable[[Bytes], tuple[Numbers, Numbers]] | None = None

    @property
    def activations(self) -> str:
        return "fp16"

    @property
    def groups(self) -> int:
        """Scales of a row in a block."""
        return max(1, BLOCK // self.group)

    @property
    def paired(self) -> bool:
        """Whether 16 bytes of x hold two steps (see the module docstring)."""
        return self.group >= 32

    @cached_property
    def planes(self) -> tuple[tuple[int, int], ...]:
        """(bits, first bit of the code) of each plane."""
        return _PLANES[self.bits]

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions, in the order of their words: planes, scales, mins, d, dmin."""
        out: list[Region] = []
        sizes = {True: 0, False: 0}

        def add(words: int, first: int, header: bool = False, each_lane: bool = False) -> int:
            out.append(Region(words, sizes[header], first, header, each_lane))
            sizes[header] += out[-1].size
            return first + words

        word = 0
        for width, _ in self.planes:
            for part in [4, 4] if width == 8 else [width]:
                word = add(part, word, each_lane=True)
        word, apart = _NUMBERS, self.span > 1 and self.scales in WIDTH_OF
        if self.scales != "one":
            for words in [4, 4] if self.scale_words == 8 else [self.scale_words]:
                word = add(words, word, header=apart)
        if self.mins in (*WIDTH_OF, "zero"):
            word = add(WIDTH_OF.get(self.mins, 1) * self.groups, word, header=apart)
        if self.scales in ("signed", "unsigned", "nibbles", "one"):
            word = add(2 if self.wide else 1, word, header=True)
        if self.mins == "sub":
            add(1, word, header=True)
        return tuple(out)

    @property
    def scale_words(self) -> int:
        """Words of scales for each g, for rows g and g + 8."""
        if self.scales in WIDTH_OF:
            return WIDTH_OF[self.scales] * self.groups
        return 2 if self.scales in ("unsigned", "nibbles") or self.groups == 4 else 1

    @cached_property
    def header_bytes(self) -> int:
        """Bytes of a span's header."""
        return sum(r.size for r in self.regions if r.header)

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of a block without the header."""
        return sum(r.size for r in self.regions if not r.header)

    @property
    def span_bytes(self) -> int:
        """Bytes of a span with its header."""
        return self.header_bytes + self.span * self.block_bytes

    def tile_bytes(self, columns: int) -> int:
        return -(-columns // (BLOCK * self.span)) * self.span_bytes

    def place(self, width: int, slot: int, row: int) -> tuple[int, int]:
        """The word of a plane, and the bit in its halves (with a table: in the whole word), of a slot's code.

        The code is that of the first column in row g or g + 8 (`row` 0, 1).
        """
        if self.table:
            return slot // 2, 16 * (slot % 2) + 4 * row
        if width == 8:
            return slot, 8 * row
        each = 8 // width
        starts = [i for i in range(16 // width) if i * width // 4 % 2 == 0]
        return slot // each, width * starts[slot % each] + 4 * row

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        return self.pack_parts(self.split(raw, rows, columns), rows, columns)

    def pack_parts(self, taken: CodeParts, rows: int, columns: int) -> Bytes:
        """`pack` for rows that are taken apart."""
        height, blocks = rows // ROWS, columns // BLOCK
        spans = blocks // self.span
        out = np.empty((height, spans, self.span_bytes), np.uint8)
        inner = out[:, :, self.header_bytes :].reshape(height, spans, self.span, self.block_bytes)
        packed = [*self._pack_codes(taken.codes, height, blocks), *self._pack_numbers(taken, height, blocks)]
        for region, words in zip(self.regions, packed, strict=True):
            if region.header:
                out[:, :, region.at : region.at + region.size] = words.reshape(height, spans, region.size)
            else:
                inner[..., region.at : region.at + region.size] = words.reshape(
                    height, spans, self.span, region.size
                )
        return out.reshape(-1)

    def _pack_codes(self, codes: Bytes, height: int, blocks: int) -> list[Bytes]:
        """The words of each plane, as bytes."""
        pairs = np.ascontiguousarray(codes).view("<u2").reshape(height, 2, 8, blocks, BLOCK // 2)
        if self.paired:  # rows, g, block, (step / 2, t, step % 2, word / 2) to slot, row, ..., g, t
            slots = pairs.reshape(height, 2, 8, blocks, 2, 4, 4).transpose(4, 6, 1, 0, 3, 2, 5)
        else:
            slots = pairs.reshape(height, 2, 8, blocks, 4, 4, 2).transpose(4, 6, 1, 0, 3, 2, 5)
        both = np.ascontiguousarray(slots).reshape(8, 2, height, blocks, 32).astype(np.uint32)
        if self.table == "int8":
            both = table_index(both & np.uint32(0x0F0F))
        else:
            both = (both | both << np.uint32(8)) & np.uint32(0xFF00FF)
        out: list[Bytes] = []
        for width, first in self.planes:
            words = np.zeros((height, blocks, 32, max(1, width)), np.uint32)
            mask = np.uint32(((1 << width) - 1) * (0x0101 if self.table == "int8" else 0x10001))
            for slot in range(8):
                for row in range(2):
                    word, bit = self.place(width, slot, row)
                    if self.table == "fp4":
                        which = slot % 2 * 2 + row
                        words[..., word] |= (both[slot, row] & np.uint32(0x70007)) << np.uint32(
                            FP4_BITS[which]
                        )
                        words[..., word] |= (
                            both[slot, row] >> np.uint32(3) & np.uint32(0x10001)
                        ) << np.uint32(FP4_SIGNS[which])
                    else:
                        words[..., word] |= ((both[slot, row] >> np.uint32(first)) & mask) << np.uint32(bit)
            parts = [words[..., :4], words[..., 4:]] if width == 8 else [words]
            out += [np.ascontiguousarray(part).view(np.uint8) for part in parts]
        return out

    def _pack_numbers(self, taken: CodeParts, height: int, blocks: int) -> list[Bytes]:
        """Scales, mins, d, dmin, those of rows g and g + 8 together."""

        def by_row(values: Numbers | None, whole: int) -> Numbers:
            """(N, n) to (tiles, blocks or spans, g, row, numbers of one)."""
            assert values is not None
            split = values.reshape(height, 2, 8, whole, -1)
            return split.transpose(0, 3, 2, 1, 4)

        out: list[Numbers] = []
        whole = blocks // self.span if self.span > 1 and self.scales in WIDTH_OF else blocks
        if self.scales != "one":
            scales = by_row(taken.scales, whole)
            if self.scales == "signed":
                scales = scales ^ np.uint8(0x80)
            if self.scales == "unsigned":
                scales = np.concatenate([scales, by_row(taken.mins, whole)], axis=4)
            # Eight words are two regions, one for each row.
            out += [scales[..., row, :] for row in range(2)] if self.scale_words == 8 else [scales]
        if self.mins in (*WIDTH_OF, "zero"):
            out.append(by_row(taken.mins, whole))
        out += [
            by_row(numbers, blocks // self.span) for numbers in (taken.d, taken.dmin) if numbers is not None
        ]
        return [np.ascontiguousarray(numbers).view(np.uint8) for numbers in out]
