"""A matrix in the CPU backend's packed layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backends.base import RawTensor
from engine.backends.cpu.family import Bytes, Family
from engine.backends.cpu.kernels import family_for
from engine.backends.cpu.memory import aligned
from engine.backends.cpu.simd import LANES

_ROWS_AT_ONCE = 4096
"""Rows packed in one go: bounds the temporary memory of loading."""


def packed_bytes(tensor: RawTensor) -> int:
    """Bytes of `tensor` in tiles, padding included, from its header alone."""
    family = family_for(tensor.type)
    n, k = tensor.shape
    return -(-n // LANES) * -(-k // family.unit) * family.block_bytes


class CpuWeight:
    """(N, K) in tiles of 16 rows. `nbytes` counts the padding rows that a pass reads too."""

    def __init__(self, tensor: RawTensor) -> None:
        self.shape = tensor.shape
        self.family: Family = family_for(tensor.type)
        n, k = tensor.shape
        known = tensor.type in self.family.types
        raw = tensor.data if known else tensor.dequantise().reshape(-1).view(np.uint8)
        name = tensor.type if known else "F32"
        self.blocks = -(-k // self.family.unit)
        self.tiles = -(-n // LANES)
        self.tile_bytes = self.blocks * self.family.block_bytes
        self.nbytes = packed_bytes(tensor)
        self._data = aligned(self.nbytes + 4096)  # kernels prefetch a little past the end
        row_bytes = raw.size // n
        for first in range(0, n, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, n - first)
            part = self._padded(raw[first * row_bytes : (first + count) * row_bytes], count, k)
            full = -(-count // LANES) * LANES
            start = first // LANES * self.tile_bytes
            packed = self.family.pack(name, part, full, self.blocks * self.family.unit)
            self._data[start : start + packed.size] = packed

    def _padded(self, raw: Bytes, rows: int, columns: int) -> npt.NDArray[np.uint8]:
        """The rows' bytes, with zero rows up to a whole tile and zero columns up to a whole block."""
        full, width = -(-rows // LANES) * LANES, self.blocks * self.family.unit
        if full == rows and width == columns:
            return np.ascontiguousarray(raw)
        per_row = raw.size // rows
        # Only plain numbers can be short of a block; a quantised file row is whole blocks by its format.
        out = np.zeros((full, per_row * width // columns), np.uint8)
        out[:rows, :per_row] = raw.reshape(rows, per_row)
        return out.reshape(-1)

    @property
    def address(self) -> int:
        """Of the first tile."""
        return int(self._data.ctypes.data)
