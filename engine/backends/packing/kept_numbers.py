"""Blocks of codes whose scale and zero point, or scale and bias, become the numbers that a layout keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.lazy_dataclass import dataclass

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class KeptNumbers:
    """How blocks are packed in two steps: after `prepared`, only bits move in `pack`.

    A block is `unit` codes, one to a byte, and `number_bytes` bytes of two numbers.
    """

    unit: int
    number_bytes: int
    keep: Callable[[Bytes], Sequence[Numbers]]
    """Maps the bytes of the numbers of B blocks (B, number_bytes) to what is kept of each, (B,)."""
    pack_kept: Callable[[Bytes, Sequence[Numbers], int, int], Bytes]
    """Packs the codes (B, unit) and kept numbers of `rows` x `columns`."""

    @cached_property
    def _kinds(self) -> list[np.dtype[Any]]:
        return [each.dtype for each in self.keep(np.zeros((1, self.number_bytes), np.uint8))]

    @property
    def file_bytes(self) -> int:
        """Bytes of a block with what is kept."""
        return self.unit + sum(kind.itemsize for kind in self._kinds)

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """As a layout's `pack`, for blocks that are prepared."""
        blocks, numbers, at = raw.reshape(-1, self.file_bytes), list[Numbers](), self.unit
        for kind in self._kinds:
            numbers.append(np.ascontiguousarray(blocks[:, at : at + kind.itemsize]).view(kind)[:, 0])
            at += kind.itemsize
        return self.pack_kept(blocks[:, : self.unit], numbers, rows, columns)

    def prepared(self, raw: Bytes) -> Bytes:
        """The blocks with their numbers as they are kept, in a new array."""
        blocks = raw.reshape(-1, self.unit + self.number_bytes)
        out, at = np.empty((len(blocks), self.file_bytes), np.uint8), self.unit
        out[:, :at] = blocks[:, :at]
        for numbers in self.keep(blocks[:, at:]):
            size = numbers.dtype.itemsize
            out[:, at : at + size] = np.ascontiguousarray(numbers)[:, None].view(np.uint8)
            at += size
        return out.reshape(-1)
