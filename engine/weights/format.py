"""What a tensor type is: sizes of its blocks, and a decoder to float32 in plain NumPy.

A row of K values is K / block_size blocks of block_bytes bytes. Every decoder takes (B, block_bytes) uint8
and gives (B, block_size) float32, with the arithmetic in float32 in the order of the formulas in its
docstring, so results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_CHUNK_VALUES = 1 << 19
"""Values decoded at a time: temporaries stay below some 20 MB whatever the tensor."""


@dataclass(frozen=True, slots=True)
class Format:
    """One tensor type: `block_size` values are stored in `block_bytes` bytes.

    `dtype` is NumPy's own type for a type of plain numbers, None for blocks and for numbers that NumPy lacks.
    """

    name: str
    block_size: int
    block_bytes: int
    decode_blocks: Callable[[Bytes], Floats]
    dtype: str | None = None

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of `shape`, whose last dimension is a multiple of `block_size`."""
        values = 1
        for size in shape:
            values *= size
        return values // self.block_size * self.block_bytes

    def dequantise(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """All values of the flat bytes `data`, float32, in `shape`."""
        blocks = data.reshape(-1, self.block_bytes)
        out = np.empty((blocks.shape[0], self.block_size), np.float32)
        step = max(1, _CHUNK_VALUES // self.block_size)
        # A signalling NaN or an infinite scale in a broken file must not become a warning; it stays what it
        # is.
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, blocks.shape[0], step):
                out[start : start + step] = self.decode_blocks(blocks[start : start + step])
        return out.reshape(shape)
