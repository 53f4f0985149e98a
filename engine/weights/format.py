"""`Format`, a tensor type: the sizes of its blocks, and a decoder to float32 in NumPy.

A row of K values is K / block_size blocks of block_bytes bytes, perhaps after row_bytes bytes with a number
for all of them. A decoder takes (B, row_bytes + block_bytes) uint8 and returns (B, block_size) float32,
computed in float32 in the order of its formula.
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

    `tail_bytes` follow a tensor's blocks. `dtype` is NumPy's type for plain numbers, None for blocks and for
    numbers that NumPy lacks.
    """

    name: str
    block_size: int
    block_bytes: int
    decode_blocks: Callable[[Bytes], Floats]
    dtype: str | None = None
    row_bytes: int = 0
    tail_bytes: int = 0

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of `shape`, whose last dimension is a multiple of `block_size`."""
        values = 1
        for size in shape:
            values *= size
        rows = values // shape[-1] if self.row_bytes and values else 0
        blocks = values // self.block_size * self.block_bytes
        return blocks + rows * self.row_bytes + self.tail_bytes

    def blocks(self, data: Bytes, columns: int) -> Bytes:
        """The flat bytes of rows of `columns` values as blocks, each after the row's own bytes."""
        if not self.row_bytes:
            return data.reshape(-1, self.block_bytes)
        rows = data.reshape(-1, self.nbytes((columns,)))
        out = np.empty((len(rows), columns // self.block_size, self.row_bytes + self.block_bytes), np.uint8)
        out[:, :, : self.row_bytes] = rows[:, None, : self.row_bytes]
        out[:, :, self.row_bytes :] = rows[:, self.row_bytes :].reshape(*out.shape[:2], -1)
        return out.reshape(-1, out.shape[2])

    def dequantise(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """Decode the flat bytes `data` to float32 of shape `shape`."""
        blocks = self.blocks(data, shape[-1]) if self.row_bytes else data.reshape(-1, self.block_bytes)
        out = np.empty((blocks.shape[0], self.block_size), np.float32)
        step = max(1, _CHUNK_VALUES // self.block_size)
        # A signalling NaN or an infinite scale in a broken file must not cause a warning; it is kept.
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, blocks.shape[0], step):
                out[start : start + step] = self.decode_blocks(blocks[start : start + step])
        return out.reshape(shape)
