"""Matrices of I2_S, the type of bitnet.cpp: codes of two bits, minus 1, and one scale for the whole matrix.

32 bytes hold 128 values: the highest bit pair of each those of the first 32, and so on. A float32 scale
follows all of them, in 32 bytes. Source: ik_llama.cpp's `dequantize_row_ms_i2s` (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.gguf.table import I2_S
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Run, Zeros
from engine.weights.tensor import FileTensor
from engine.words import _

_SHIFTS = np.array([6, 4, 2, 0], np.uint8)[:, None]


class _Source:
    """A `Source` of a matrix (N, K)."""

    def __init__(self, tensor: FileTensor) -> None:
        (rows, columns), raw = tensor.shape, tensor.retyped(tensor.name, "U8", (tensor.nbytes,))
        end = raw.nbytes - I2_S.tail_bytes
        self._codes = raw.rows(0, end).retyped(tensor.name, "U8", (rows, columns // 4))
        self._scale, self._groups = raw.rows(end, end + 4), columns // I2_S.block_size

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        packed = self._codes.take(outputs).data.reshape(outputs.size, self._groups, 1, -1)
        return (packed >> _SHIFTS & np.uint8(3)).reshape(outputs.size, -1)[:, start:stop]

    def scales(self, outputs: Indices) -> Floats:
        return np.full((outputs.size, self._groups), self._scale.data.view(np.float32)[0])

    def zeros(self, outputs: Indices) -> Zeros:
        return np.ones((outputs.size, self._groups), np.int16)


def with_one_scale(tensor: RawTensor) -> RawTensor:
    """A matrix of I2_S in groups; other tensors unchanged. Raises `UnsupportedModel` for no matrix."""
    if not isinstance(tensor, FileTensor) or tensor.type != I2_S.name:
        return tensor
    if len(tensor.shape) != 2:
        raise UnsupportedModel(
            _(
                "The tensor {tensor} of the type {type} has the shape {shape}; of this type, only single "
                "matrices can be read. Choose another file of the model.",
                tensor=tensor.name,
                type=tensor.type,
                shape=tensor.shape,
            )
        )
    rows, columns = tensor.shape
    size = I2_S.block_size
    runs = [Run(start, size, 2, start // size) for start in range(0, columns, size)]
    layout = Layout(columns, runs, None, False, tensor.nbytes, rows)
    return GroupedTensor(tensor.name, layout, _Source(tensor))
