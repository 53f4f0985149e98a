"""GPTQ folders in Marlin's layout: `X.B` int32 (K / 16, 2 N), `X.s` (G, N); w = (code - 8) * scale.

A row of B has the codes of 16 inputs, those of each 64 outputs in 128 words of eight. Word 4 i + j, i below
32, has outputs 16 j + i / 4 and that plus 8, of each the inputs m, m + 1, m + 8 and m + 9, where m is
2 (i % 4): in the first half of the word m and m + 8 of both outputs, in the second m + 1 and m + 9. Scales of
64 outputs are transposed, (8, 8); where a row has one scale, those of 32 are stored as (4, 4, 2) with the
first axes exchanged. Source: the repository IST-DASLab/marlin (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Zeros, runs_by_group
from engine.weights.packed.packed_tensors import INTEGERS, SCALES, Matrix
from engine.words import _

PARTS = ("B", "s")
_BITS, _MIDDLE = 4, 8
_INPUTS, _OUTPUTS, _WORDS = 16, 64, 128
"""Inputs and outputs of a block of codes, and its words."""
_SHIFTS = 4 * np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32)
"""Where in a word the codes are: of the first output those of inputs m, m + 1, m + 8, m + 9, then of the
other.
"""


class _Source:
    """A `Source`."""

    def __init__(self, matrix: Matrix, groups: int) -> None:
        self._matrix, self._groups = matrix, groups

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        blocks, inverse = np.unique(outputs // _OUTPUTS, return_inverse=True)
        columns = (_WORDS * blocks[:, None] + np.arange(_WORDS)).reshape(-1)
        words = self._matrix.word_columns("B", columns)[start // _INPUTS : -(-stop // _INPUTS)]
        codes = (words[:, :, None] >> _SHIFTS & np.uint32(15)).astype(np.uint8)
        # inputs / 16, block, output % 8, m / 2, output / 16, output / 8 % 2, input / 8 % 2, input % 2
        parts = codes.reshape(len(words), blocks.size, 8, 4, 4, 2, 2, 2)
        own = parts.transpose(1, 4, 5, 2, 0, 6, 3, 7).reshape(blocks.size, _OUTPUTS, -1)
        first = start % _INPUTS
        return own[inverse, outputs % _OUTPUTS, first : first + stop - start]

    def scales(self, outputs: Indices) -> Floats:
        stored = self._matrix.floats("s")
        parts = stored.reshape(-1, 8, 8, 1) if self._groups > 1 else stored.reshape(-1, 4, 4, 2)
        return np.ascontiguousarray(parts.transpose(0, 2, 1, 3).reshape(stored.shape).T[outputs])

    def zeros(self, outputs: Indices) -> Zeros:
        return np.full((outputs.size, self._groups), _MIDDLE, np.int16)


def marlin_matrix(matrix: Matrix) -> RawTensor:
    """The matrix X.weight. Raises `BadCheckpoint`."""
    codes, scales = matrix.get("B", INTEGERS, 2), matrix.get("s", SCALES, 2)
    groups, rows = scales.shape
    columns = _INPUTS * codes.shape[0]
    if not groups or not columns or columns % groups or rows % _OUTPUTS:
        raise matrix.wrong("s", _("scales for equal groups of {columns} inputs", columns=columns))
    matrix.check("B", (codes.shape[0], _WORDS * rows // _OUTPUTS))
    runs, order = runs_by_group(np.arange(columns) // (columns // groups), _BITS)
    layout = Layout(columns, tuple(runs), order, scales.type == "F16", matrix.nbytes(PARTS), rows)
    return GroupedTensor(matrix.stem + ".weight", layout, _Source(matrix, groups))
