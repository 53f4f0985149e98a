"""Blocks of GGUF's IQ types with their codes looked up, from which only bits move (`bit_moves`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kernels.look_up import ARGUMENTS
from engine.backends.cpu.layouts.blocks import BlockLayout
from engine.backends.cpu.layouts.layout import Bytes
from engine.backends.gguf_blocks.codebooks import BitFields


@dataclass(frozen=True)
class LookedUp:
    """What packs blocks into `layout` whose codes, one to a byte, come before them."""

    layout: BlockLayout

    @property
    def types(self) -> tuple[str, ...]:
        return self.layout.types

    @property
    def unit(self) -> int:
        return self.layout.unit

    @property
    def file_bytes(self) -> int:
        """Bytes of the codes and of the block."""
        return self.layout.unit + self.layout.file_bytes

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """As `WeightLayout.pack`."""
        both = raw.reshape(-1, self.file_bytes)
        parts = self.layout.block.split(np.ascontiguousarray(both[:, self.unit :]))
        return self.layout.pack_parts(replace(parts, codes=both[:, : self.unit]), rows, columns)

    def looked_up(self, raw: Bytes) -> Bytes:
        """The codes of each block, then the block, in a new array."""
        fields, rows = _tables(self.layout)
        book, size = self.layout.block.codebook, self.layout.file_bytes
        assert book is not None
        count = raw.size // size
        out = np.empty(count * self.file_bytes, np.uint8)
        tables = [
            number
            for field, row in zip(fields, rows, strict=True)
            for number in (field.ctypes.data, field.shape[1] // 4, row.ctypes.data)
        ]
        args = np.zeros(ARGUMENTS, np.int64)
        args[: 7 + len(tables)] = [
            raw.ctypes.data, count, size, self.unit // book.width, book.width, out.ctypes.data, len(rows),
            *tables,
        ]  # fmt: skip
        _kernel()(args.ctypes.data, 0, 0, 0)
        return out


@cache
def _tables(layout: BlockLayout) -> tuple[list[npt.NDArray[np.int32]], list[npt.NDArray[np.uint64]]]:
    """The fields and the rows of each of the kernel's tables."""
    book = layout.block.codebook
    assert book is not None
    fields, rows = [_words(book.index, layout.file_bytes)], [np.ascontiguousarray(book.rows())]
    if book.sign is not None and book.signs is not None:
        fields.append(_words(book.sign, layout.file_bytes))
        rows.append(np.ascontiguousarray(book.signs()))
    return fields, rows


def _words(fields: BitFields, size: int) -> npt.NDArray[np.int32]:
    """The kernel's words of these fields: (groups, 1 + 4 for each run). All reads are within the block."""
    groups, done = len(fields.runs[0][0]), 0
    columns = [np.array(fields.plus or (0,) * groups)]
    for places, bits in fields.runs:
        first = np.array(places)
        offset = np.minimum(first // 8, size - 4)
        columns += [offset, first - 8 * offset, np.full(groups, (1 << bits) - 1), np.full(groups, done)]
        done += bits
    return np.ascontiguousarray(np.stack(columns, axis=1), np.int32)


@cache
def _kernel() -> Callable[[int, int, int, int], None]:
    for _ in KERNELS.compile(["look_up"]):
        pass
    return KERNELS.function("look_up")
