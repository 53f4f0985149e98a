"""Tensors as files hold them, and the types of NumPy arrays."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class RawTensor(Protocol):
    """A tensor as its file holds it; nothing is read until its bytes or values are used.

    `type` is the GGUF type name ("F32", "F16", "BF16", "Q4_1", ...), also for safetensors; `shape` is (N, K)
    with K contiguous, (N,) for vectors, or (X, N, K) for a stack of X matrices. `name` is for messages.
    """

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, uint8, flat. They may be read again each time, so take `rows` of a large matrix."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        ...

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        ...

    def part(self, index: int) -> RawTensor:
        """Matrix `index` of a stack (X, N, K): (N, K), not copied."""
        ...

    def rows(self, start: int, stop: int) -> RawTensor:
        """Rows `start` to `stop` of the first dimension, not copied."""
        ...

    def take(self, indices: npt.ArrayLike) -> RawTensor:
        """These rows of the first dimension, in this order, not copied."""
        ...
