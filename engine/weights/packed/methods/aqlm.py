"""AQLM folders: each group of weights is the sum of one vector from each of several codebooks.

Beside `X.codes` (outputs / p, inputs / q, C), signed integers of which the lowest b bits count, stand
`X.codebooks` (C, 2^b, p, q) and `X.scales` (outputs / p, 1, 1, 1). The p by q weights of a group are the sum
over c of codebook c's matrix `codes[c]`, times the scale of its outputs. Kept as F16.
Source: aqlm 1.1.7, `inference.py` and `utils.py` (facts only); arXiv 2401.06118, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from engine.tensors import RawTensor
from engine.weights.format import Floats
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import SCALES, Matrix, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("codes", "codebooks", "scales")
_CODES = {"I8": "u1", "I16": "u2", "I32": "u4"}


def wrap_aqlm(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    The shapes say everything; the settings are not read. Raises `BadCheckpoint`.
    """
    return wrapped(tensors, _PARTS, _tensor)


def _tensor(matrix: Matrix) -> RawTensor:
    codes = matrix.get("codes", _CODES, 3)
    books = matrix.get("codebooks", SCALES, 4)
    scales = matrix.get("scales", SCALES, 4)
    groups, across, count = codes.shape
    held, size, outputs, inputs = books.shape
    most = 1 << 8 * np.dtype(_CODES[codes.type]).itemsize
    if not prod(codes.shape) * prod(books.shape) or held != count or size & (size - 1) or size > most:
        raise matrix.wrong("codebooks", _("one codebook for each of {count} codes", count=count))
    if scales.shape != (groups, 1, 1, 1):
        raise matrix.wrong("scales", _("numbers of shape {shape}", shape=(groups, 1, 1, 1)))

    def decode(rows: Indices) -> Floats:
        places, inside = np.divmod(rows, outputs)
        found = matrix.byte_rows("codes", places).view(_CODES[codes.type]).reshape(-1, across, count)
        chosen = found.astype(np.int64) & (size - 1)
        tables = matrix.floats("codebooks")
        values: Floats = tables[0][chosen[:, :, 0], inside[:, None]]
        for number in range(1, count):
            values += tables[number][chosen[:, :, number], inside[:, None]]
        values *= matrix.floats("scales").reshape(-1)[places][:, None, None]
        return values.reshape(rows.size, -1)

    shape = (groups * outputs, across * inputs)
    return DecodedMatrix(matrix.stem + ".weight", "AQLM", shape, matrix.nbytes(_PARTS), decode)
