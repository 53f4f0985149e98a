"""8-bit floats together with their scales, in blocks a backend can pack; a view of `Fp8Tensor`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backends.base import RawTensor
from engine.errors import BadCheckpoint
from engine.weights.format import Bytes, Floats
from engine.weights.fp8 import Fp8Tensor

UNITS = (128, 32)
"""Columns of a block."""


def fp8_blocks(tensor: RawTensor) -> RawTensor:
    """A matrix of F8_E4M3 whose scales serve whole blocks as `Fp8Blocks`; any other tensor as it is."""
    if not isinstance(tensor, Fp8Tensor) or tensor.type != "F8_E4M3" or len(tensor.shape) != 2:
        return tensor
    columns, shared = tensor.shape[1], tensor.block_columns
    unit = next((unit for unit in UNITS if columns and columns % unit == 0 and (shared >= columns or shared % unit == 0)), 0)
    return Fp8Blocks(tensor, unit) if unit else tensor


class Fp8Blocks:
    """A `RawTensor` of type "FP8_128" or "FP8_32": `unit` numbers, then their scale as float32, again and again."""

    def __init__(self, source: Fp8Tensor, unit: int) -> None:
        self._source, self._unit = source, unit
        self.name, self.shape, self.type = source.name, source.shape, f"FP8_{unit}"

    @property
    def nbytes(self) -> int:
        """See `Fp8Tensor`."""
        return self._source.nbytes

    @property
    def data(self) -> Bytes:
        """See the class. Raises `BadCheckpoint` for a number that is none."""
        rows, columns = self.shape
        numbers = self._source.data.reshape(rows, columns)
        if ((numbers & np.uint8(0x7F)) == 0x7F).any():
            raise BadCheckpoint(f"The tensor {self.name} (F8_E4M3) holds something that is not a number. Download the model again.")
        out = np.empty((rows, columns // self._unit, self._unit + 4), np.uint8)
        out[:, :, : self._unit] = numbers.reshape(rows, -1, self._unit)
        firsts = np.arange(0, columns, self._unit) // self._source.block_columns
        out[:, :, self._unit :] = np.ascontiguousarray(self._source.row_scales()[:, firsts])[..., None].view(np.uint8)
        return out.reshape(-1)

    def dequantise(self) -> Floats:
        """See `RawTensor`."""
        return self._source.dequantise()

    def part(self, index: int) -> RawTensor:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise BadCheckpoint(f"The tensor {self.name} is one matrix, where the model's headers call for a stack of matrices.")

    def rows(self, start: int, stop: int) -> Fp8Blocks:
        """See `RawTensor`."""
        return Fp8Blocks(self._source.rows(start, stop), self._unit)

    def take(self, indices: npt.ArrayLike) -> Fp8Blocks:
        """See `RawTensor`."""
        return Fp8Blocks(self._source.take(indices), self._unit)
