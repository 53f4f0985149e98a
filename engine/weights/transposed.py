"""A plain matrix that a file holds the other way round, as GPT-2's and GPT-OSS's folders do: (K, N) seen as (N, K)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backends.base import RawTensor
from engine.errors import UnsupportedModel

_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}


class Transposed:
    """A `RawTensor` (N, K) of the plain one `source` (K, N), which is read whole for each piece asked for: K x N numbers at most."""

    def __init__(self, source: RawTensor, order: npt.NDArray[np.int64] | None = None) -> None:
        if source.type not in _WIDTHS:
            raise UnsupportedModel(
                f"The tensor {source.name} of type {source.type} lies transposed in the file, which can be read for "
                f"{', '.join(_WIDTHS)} only; choose an unquantised variant or a GGUF file."
            )
        self._source = source
        self._order = np.arange(source.shape[1]) if order is None else order
        self.name, self.type = source.name, source.type
        self.shape: tuple[int, ...] = (len(self._order), source.shape[0])

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """See `RawTensor`."""
        width = _WIDTHS[self.type]
        numbers = self._source.data.view(np.dtype(f"u{width}")).reshape(self._source.shape)
        return np.ascontiguousarray(numbers[:, self._order].T).reshape(-1).view(np.uint8)

    @property
    def nbytes(self) -> int:
        """See `RawTensor`."""
        return _WIDTHS[self.type] * self.shape[0] * self.shape[1]

    def dequantise(self) -> npt.NDArray[np.float32]:
        """See `RawTensor`."""
        return np.ascontiguousarray(self._source.dequantise()[:, self._order].T)

    def part(self, index: int) -> RawTensor:
        """Not a stack: raises IndexError."""
        raise IndexError(f"{self.name} is a matrix, not a stack")

    def rows(self, start: int, stop: int) -> RawTensor:
        """See `RawTensor`."""
        return Transposed(self._source, self._order[start:stop])

    def take(self, indices: npt.ArrayLike) -> RawTensor:
        """See `RawTensor`."""
        return Transposed(self._source, self._order[np.asarray(indices, np.int64)])


def transposed(tensor: RawTensor) -> RawTensor:
    """`tensor` (K, N) as (N, K). Raises `UnsupportedModel` for a quantised one."""
    return Transposed(tensor)
