"""`Format`, a tensor type: the sizes of its blocks, and a decoder to float32 in NumPy.

A row of K values is K / block_size blocks of block_bytes bytes. A decoder takes (B, block_bytes) uint8 and
returns (B, block_size) float32, computed in float32 in the order of its formula.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.lazy_dataclass import dataclass

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_CHUNK_VALUES = 1 << 19
"""Values decoded at a time: temporaries stay below about 20 MB for tensors of any size."""


@dataclass(frozen=True, slots=True)
class Format:
    """One tensor type: `block_size` values are stored in `block_bytes` bytes.

    `dtype` is NumPy's type for plain numbers, None for blocks and for numbers that NumPy lacks.
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
        """Decode the flat bytes `data` to float32 of shape `shape`."""
        blocks = data.reshape(-1, self.block_bytes)
        out = np.empty((blocks.shape[0], self.block_size), np.float32)
        step = max(1, _CHUNK_VALUES // self.block_size)
        # A signalling NaN or an infinite scale in a broken file must not cause a warning; it is kept.
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, blocks.shape[0], step):
                out[start : start + step] = self.decode_blocks(blocks[start : start + step])
        return out.reshape(shape)
