"""A matrix that is transposed in the file: (K, N) as (N, K). Plain ones are as in the folders of GPT-2 and
GPT-OSS; packed ones, as in latent attention, are unpacked.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.tensor import FileTensor, find_format
from engine.words import _

_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.uint32),
    "F16": np.dtype(np.uint16),
    "BF16": np.dtype(np.uint16),
}
_PANEL_BYTES = 8 << 20
"""Bytes of columns read at once; successive pieces of a matrix are mostly in the panel read last."""
_ROWS_BYTES = 1 << 20


class _Panels:
    """Reads columns of `source` (K, N) as bits; keeps the last panel of neighbouring columns."""

    def __init__(self, source: RawTensor) -> None:
        self.source, self.dtype = source, _TYPES.get(source.type, np.dtype(np.uint8))
        # retyped to integers, because NumPy has no bf16
        if isinstance(source, FileTensor) and not source.ordered:
            self.source = source.retyped(source.name, f"U{8 * self.dtype.itemsize}", source.shape)
        self._start, self._panel = 0, np.zeros((0, source.shape[0]), self.dtype)

    def take(self, columns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The columns as rows of a new array, (columns, K)."""
        if not columns.size:
            return np.zeros((0, self.source.shape[0]), self.dtype)
        low, high = int(columns.min()), int(columns.max()) + 1
        if not self._start <= low <= high <= self._start + len(self._panel):
            most = max(1, _PANEL_BYTES // max(1, self.dtype.itemsize * self.source.shape[0]))
            if high - low > max(most, 4 * columns.size):  # far apart: in parts
                return np.concatenate([self.take(part) for part in np.array_split(columns, 2)])
            # free the old panel before reading the new one
            self._panel = np.zeros((0, self.source.shape[0]), self.dtype)
            self._start, self._panel = low, self._read(low, min(max(high, low + most), self.source.shape[1]))
        return np.ascontiguousarray(self._panel[columns - self._start])

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Columns start .. stop - 1 as rows, (stop - start, K)."""
        source = self.source
        out = np.empty((stop - start, source.shape[0]), self.dtype)
        step = max(1, _ROWS_BYTES // max(1, self.dtype.itemsize * (stop - start)))
        for first in range(0, source.shape[0], step):
            some = source.rows(first, min(first + step, source.shape[0]))
            if isinstance(some, FileTensor) and not some.ordered:
                part = some.columns(start, stop).view(self.dtype)
            else:
                part = some.data.view(self.dtype).reshape(some.shape)[:, start:stop]
            out[:, first : first + len(part)] = part.T
        return out


class Transposed:
    """The `source` (K, N) of numbers or bytes as a `RawTensor` (N, K), read in panels of columns that its
    `rows` share.
    """

    def __init__(
        self, source: RawTensor, order: npt.NDArray[np.int64] | None = None, panels: _Panels | None = None
    ) -> None:
        self._source, self._panels = source, panels or _Panels(source)
        self._order = np.arange(source.shape[1]) if order is None else order
        self.name, self.type = source.name, source.type
        self.shape: tuple[int, ...] = (len(self._order), source.shape[0])

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return self._panels.take(self._order).reshape(-1).view(np.uint8)

    @property
    def nbytes(self) -> int:
        return self._panels.dtype.itemsize * self.shape[0] * self.shape[1]

    def dequantise(self) -> npt.NDArray[np.float32]:
        format = find_format(self.type)
        assert format is not None
        return format.dequantise(self.data, self.shape)

    def part(self, index: int) -> RawTensor:
        """Not a stack: raises IndexError."""
        raise IndexError(f"{self.name} is a matrix, not a stack")

    def rows(self, start: int, stop: int) -> RawTensor:
        return Transposed(self._source, self._order[start:stop], self._panels)

    def take(self, indices: npt.ArrayLike) -> RawTensor:
        return Transposed(self._source, self._order[np.asarray(indices, np.int64)], self._panels)


@runtime_checkable
class _Transposable(Protocol):
    def transposed(self) -> RawTensor: ...


def transposed(tensor: RawTensor) -> RawTensor:
    """`tensor` (K, N) as (N, K). Raises `UnsupportedModel` for a tensor that can only be unpacked for it."""
    if isinstance(tensor, _Transposable):
        return tensor.transposed()
    if tensor.type not in _TYPES:
        raise UnsupportedModel(
            _(
                "The tensor {source} of type {type} is stored transposed, which is supported "
                "only for {types}; choose an unquantised variant or a GGUF file.",
                source=tensor.name,
                type=tensor.type,
                types=", ".join(_TYPES),
            )
        )
    return Transposed(tensor)


class UnpackedTransposed:
    """The packed `source` (K, N) as an F16 `RawTensor` (N, K). Each access unpacks it again: for small ones.

    Reading it raises `BadCheckpoint` for a number that is too large for F16.
    """

    type = "F16"

    def __init__(self, source: RawTensor, order: npt.NDArray[np.int64] | None = None) -> None:
        self._source, self.name = source, source.name
        self._order = np.arange(source.shape[1]) if order is None else order
        self.shape: tuple[int, ...] = (len(self._order), source.shape[0])

    def _values(self) -> npt.NDArray[np.float16]:
        with np.errstate(over="ignore"):
            values = self._source.dequantise().T[self._order].astype(np.float16)
        if not np.isfinite(values).all():
            raise BadCheckpoint(
                _(
                    "The tensor {name} ({type}) holds a number that is not finite or too large; "
                    "the file is damaged. Download the model again.",
                    name=self.name,
                    type=self._source.type,
                )
            )
        return values

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(self._values()).reshape(-1).view(np.uint8)

    @property
    def nbytes(self) -> int:
        return 2 * self.shape[0] * self.shape[1]

    def dequantise(self) -> npt.NDArray[np.float32]:
        return self._values().astype(np.float32)

    def part(self, index: int) -> RawTensor:
        """Not a stack: raises IndexError."""
        raise IndexError(f"{self.name} is a matrix, not a stack")

    def rows(self, start: int, stop: int) -> RawTensor:
        return UnpackedTransposed(self._source, self._order[start:stop])

    def take(self, indices: npt.ArrayLike) -> RawTensor:
        return UnpackedTransposed(self._source, self._order[np.asarray(indices, np.int64)])


def unpacked_transposed(tensor: RawTensor) -> RawTensor:
    """`tensor` (K, N) as (N, K): a plain one in its own type, others as F16."""
    return Transposed(tensor) if tensor.type in _TYPES else UnpackedTransposed(tensor)
