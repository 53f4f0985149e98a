"""Matrices that are decoded row by row: backends keep them as F16, or as blocks that are made of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.grouped import Indices, one_matrix

_CHUNK_VALUES = 1 << 20


class DecodedMatrix:
    """A `RawTensor` (N, K); `decode` gives float32 rows for row numbers."""

    __slots__ = ("_blocks", "_decode", "_file_bytes", "_file_rows", "_some_outputs", "name", "shape", "type")

    def __init__(
        self,
        name: str,
        type: str,
        shape: tuple[int, int],
        file_bytes: int,
        decode: Callable[[Indices], Floats],
        blocks: Callable[[Indices], Bytes] | None = None,
    ) -> None:
        """`file_bytes` is the size of all its tensors in the file. `blocks` gives the bytes of rows where
        `type` is one that backends pack.
        """
        self.name, self.type = name, type
        self.shape: tuple[int, ...] = shape
        self._decode, self._file_bytes, self._file_rows = decode, file_bytes, shape[0]
        self._blocks = blocks
        self._some_outputs: Indices | None = None

    @property
    def _outputs(self) -> Indices:
        # made on request: a mixture has tens of thousands of matrices
        return np.arange(self._file_rows) if self._some_outputs is None else self._some_outputs

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        return self._file_bytes * self.shape[0] // max(1, self._file_rows)

    @property
    def data(self) -> Bytes:
        """The blocks of a type that backends pack, else the values' bytes, float32."""
        if self._blocks is not None:
            return self._blocks(self._outputs)
        return self.dequantise().reshape(-1).view(np.uint8)

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        out = np.empty(self.shape, np.float32)
        outputs, step = self._outputs, max(1, _CHUNK_VALUES // max(1, self.shape[1]))
        # a NaN or a 0 in a scale is kept without a warning
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            for first in range(0, self.shape[0], step):
                out[first : first + step] = self._decode(outputs[first : first + step])
        return out

    def part(self, index: int) -> DecodedMatrix:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise one_matrix(self.name)

    def rows(self, start: int, stop: int) -> DecodedMatrix:
        return self._some(self._outputs[start:stop])

    def take(self, indices: npt.ArrayLike) -> DecodedMatrix:
        return self._some(self._outputs[np.asarray(indices, np.int64).reshape(-1)])

    def _some(self, outputs: Indices) -> DecodedMatrix:
        other = DecodedMatrix(
            self.name,
            self.type,
            (self._file_rows, self.shape[1]),
            self._file_bytes,
            self._decode,
            self._blocks,
        )
        other._some_outputs, other.shape = outputs, (outputs.size, self.shape[1])
        return other


class PackedStack:
    """A `RawTensor` (X, N, K), whose matrices are made one by one by `part`: number -> `RawTensor` (N, K)."""

    __slots__ = ("_file_bytes", "_order", "_part", "_whole", "name", "shape", "type")

    def __init__(
        self,
        name: str,
        count: int,
        file_bytes: int,
        part: Callable[[int], RawTensor],
        order: Indices | None = None,
    ) -> None:
        """`count`, at least 1, is the number of matrices in the file, and `file_bytes` their size. `order`
        selects some of them. Raises what `part` raises.
        """
        first = part(0)
        self._whole, self._file_bytes, self._part = count, file_bytes, part
        self._order = np.arange(count) if order is None else order
        self.name, self.type = name, first.type
        self.shape: tuple[int, ...] = (self._order.size, *first.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        return self._file_bytes * self.shape[0] // self._whole

    @property
    def data(self) -> Bytes:
        """The matrices' `data`, one after the other."""
        return np.concatenate([self.part(i).data for i in range(self.shape[0])] or [np.empty(0, np.uint8)])

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        out = np.empty(self.shape, np.float32)
        for i in range(self.shape[0]):
            out[i] = self.part(i).dequantise()
        return out

    def part(self, index: int) -> RawTensor:
        return self._part(int(self._order[index]))

    def rows(self, start: int, stop: int) -> PackedStack:
        return self.take(np.arange(start, stop))

    def take(self, indices: npt.ArrayLike) -> PackedStack:
        order = self._order[np.asarray(indices, np.int64).reshape(-1)]
        return PackedStack(self.name, self._whole, self._file_bytes, self._part, order)
