"""Blocks of GGUF's IQ types with their codes looked up, from which only bits move (`bit_moves`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kernels.look_up import ARGUMENTS, look_up_name
from engine.backends.gguf_blocks.block_type import BlockType, Bytes, Parts
from engine.backends.gguf_blocks.codebooks import Words
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LookedUp:
    """What packs blocks of a type with a codebook whose codes, one to a byte, come before them."""

    block: BlockType
    pack_parts: Callable[[Parts, int, int], Bytes]
    """Packs blocks taken apart: `rows` x `columns`."""

    def __post_init__(self) -> None:
        _kernel(self.block)  # compiled here, not by several of the threads that pack

    @property
    def unit(self) -> int:
        return self.block.values

    @property
    def file_bytes(self) -> int:
        """Bytes of the codes and of the block."""
        return self.block.values + self.block.nbytes

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """As `WeightLayout.pack`."""
        both = raw.reshape(-1, self.file_bytes)
        parts = self.block.split(np.ascontiguousarray(both[:, self.unit :]))
        return self.pack_parts(replace(parts, codes=both[:, : self.unit]), rows, columns)

    def prepared(self, raw: Bytes) -> Bytes:
        """The codes of each block, then the block, in a new array."""
        rows, signs = _tables(self.block)
        count = raw.size // self.block.nbytes
        out = np.empty(count * self.file_bytes, np.uint8)
        args = np.array(
            [raw.ctypes.data, count, out.ctypes.data, rows.ctypes.data, signs.ctypes.data], np.int64
        )
        assert len(args) == ARGUMENTS
        _kernel(self.block)(args.ctypes.data, 0, 0, 0)
        return out


@cache
def _tables(block: BlockType) -> tuple[Words, Words]:
    """The rows and the signs of a type's codebook."""
    book = block.codebook
    assert book is not None
    signs = book.signs() if book.signs is not None else np.zeros(0, np.uint64)
    return np.ascontiguousarray(book.rows()), np.ascontiguousarray(signs)


@cache
def _kernel(block: BlockType) -> Callable[[int, int, int, int], None]:
    name = look_up_name(block)
    for _ in KERNELS.compile([name]):
        pass
    return KERNELS.function(name)
