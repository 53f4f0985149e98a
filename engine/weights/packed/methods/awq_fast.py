"""AWQ folders of version "gemv_fast" (AutoAWQ): 4-bit codes, w = code * scale + scaled zero.

`X.qweight` int16 (N / 4, K), `X.scales` and `X.scaled_zeros` (Z, N), Z being the G groups and padding. Of
each 64 words the first 16 belong to the first of four outputs, and so on; place 8 b + 4 c + a of 32 codes of
an output is that of input 8 a + 2 b + c. Source: the packing of AutoAWQ (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import SCALES, Matrix
from engine.words import _

PARTS = ("qweight", "scaled_zeros", "scales")
_BITS, _TOGETHER, _WORDS = 4, 4, 64
"""Bits of a code; outputs that share words; words of a round of them."""


class _Source:
    """An `Affine`."""

    def __init__(self, matrix: Matrix, groups: int) -> None:
        self._matrix, self._groups = matrix, groups

    def codes(self, outputs: Indices) -> Bytes:
        rows, inverse = np.unique(outputs // _TOGETHER, return_inverse=True)
        packed = self._matrix.byte_rows("qweight", rows)
        # row, 64 inputs, output, codes of an output: the lower half of a byte, then the upper
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(rows), -1, _TOGETHER, 2, 4, 2, 4)
        own = codes.transpose(0, 2, 1, 3, 6, 4, 5).reshape(len(rows), _TOGETHER, -1)
        return own[inverse, outputs % _TOGETHER]

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        scales, zeros = (
            np.ascontiguousarray(self._matrix.floats(part)[: self._groups].T[outputs])
            for part in ("scales", "scaled_zeros")
        )
        return scales, zeros

    def decode(self, outputs: Indices) -> Floats:
        scales, zeros = self.numbers(outputs)
        codes = self.codes(outputs).astype(np.float32).reshape(*scales.shape, -1)
        values: Floats = codes * scales[:, :, None] + zeros[:, :, None]
        return values.reshape(outputs.size, -1)


def fast_matrix(matrix: Matrix, size: int | None) -> RawTensor:
    """X.weight, with groups of `size` inputs (None, or below 1: of all). Raises `BadCheckpoint`."""
    codes, scales = matrix.get("qweight", ("I16", "U16"), 2), matrix.get("scales", SCALES, 2)
    matrix.get("scaled_zeros", (scales.type,), 2)
    rows, columns = _TOGETHER * codes.shape[0], codes.shape[1]
    size = columns if size is None or size < 1 else size
    if columns % _WORDS or columns % size or not columns:
        raise matrix.wrong("qweight", _("words of a multiple of {size} inputs", size=size))
    matrix.check("scaled_zeros", scales.shape)
    if scales.shape[1] != rows or scales.shape[0] < columns // size:
        raise matrix.wrong("scales", _("scales for equal groups of {columns} inputs", columns=columns))
    groups, nbytes = columns // size, matrix.nbytes(PARTS)
    source = _Source(matrix, groups)
    name = matrix.stem + ".weight"
    return affine_matrix(name, (rows, columns), _BITS, groups, scales.type, nbytes, source)
