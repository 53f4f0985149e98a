"""AWQ folders (AutoAWQ): 4-bit codes, a weight is (code - zero) * scale, groups along the inputs.

Version "gemm": `X.qweight` int32 (K, N / 8), `X.qzeros` int32 (G, N / 8), `X.scales` (G, N); the eight codes
of a word are the outputs 0, 2, 4, 6, 1, 3, 5, 7, lowest first. Version "gemv": `X.qweight` int32 (N, K / 8),
`X.qzeros` int32 (N, Z) and `X.scales` (N, 8 Z), Z words for G groups and padding, in plain order. `awq_fast`
has version "gemv_fast". Source: arXiv 2306.00978 and the packing of AutoAWQ (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.bitstream import unpack_codes, unpack_nibbles
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Zeros, runs_by_group
from engine.weights.packed.methods import awq_fast
from engine.weights.packed.packed_tensors import INTEGERS, SCALES, Matrix, whole, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("qweight", "qzeros", "scales")
_BITS, _PER_WORD = 4, 8
_PLACE = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""The place in a word of each of its eight outputs."""
_VERSIONS = ("gemm", "gemv", "gemv_fast")


class _Gemm:
    """A `Source` of version "gemm"."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        words, inverse = np.unique(outputs // _PER_WORD, return_inverse=True)
        own = self._matrix.word_columns("qweight", words)[start:stop]
        return unpack_nibbles(own, inverse, _PLACE[outputs % _PER_WORD])

    def scales(self, outputs: Indices) -> Floats:
        return np.ascontiguousarray(self._matrix.floats("scales").T[outputs])

    def zeros(self, outputs: Indices) -> Zeros:
        words = self._matrix.words("qzeros")
        return unpack_nibbles(words, outputs // _PER_WORD, _PLACE[outputs % _PER_WORD]).astype(np.int16)


class _Gemv:
    """A `Source` of version "gemv"."""

    def __init__(self, matrix: Matrix, columns: int, groups: int) -> None:
        self._matrix, self._columns, self._groups = matrix, columns, groups

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        return unpack_codes(self._matrix.byte_rows("qweight", outputs).view(np.uint32), _BITS, self._columns)[
            :, start:stop
        ]

    def scales(self, outputs: Indices) -> Floats:
        return self._matrix.floats("scales")[outputs, : self._groups]

    def zeros(self, outputs: Indices) -> Zeros:
        return unpack_codes(self._matrix.words("qzeros")[outputs], _BITS, self._groups).astype(np.int16)


def wrap_awq(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    said = (settings.get(key) for key in ("version", "checkpoint_format", "format"))
    version = str(next((each for each in said if each), "gemm")).lower()
    bits = settings.get("bits", settings.get("w_bit", _BITS))
    if version not in _VERSIONS or bits != _BITS:
        raise UnsupportedModel(
            _(
                "config.json says that the AWQ weights have the version {version!r} and {bits} "
                "bits, which cannot be read; {versions} of {bits_2} bits can. Choose such a "
                "variant of this model, or a GGUF file.",
                version=version[:40],
                bits=str(bits)[:40],
                versions=", ".join(_VERSIONS),
                bits_2=_BITS,
            )
        )
    if version == "gemm":
        return wrapped(tensors, _PARTS, _gemm)
    size = whole(settings.get("group_size", settings.get("q_group_size")))
    if version == "gemv_fast":
        return wrapped(tensors, awq_fast.PARTS, lambda matrix: awq_fast.fast_matrix(matrix, size))
    return wrapped(tensors, _PARTS, lambda matrix: _gemv(matrix, size))


def _gemm(matrix: Matrix) -> RawTensor:
    qweight, scales, _unused = (
        matrix.get("qweight", INTEGERS, 2),
        matrix.get("scales", SCALES, 2),
        matrix.get("qzeros", INTEGERS, 2),
    )
    columns, rows, groups = qweight.shape[0], qweight.shape[1] * _PER_WORD, scales.shape[0]
    matrix.check("scales", (groups, rows))
    matrix.check("qzeros", (groups, qweight.shape[1]))
    if not groups or columns % groups:
        raise matrix.wrong("scales", _("scales for equal groups of {columns} inputs", columns=columns))
    return _tensor(matrix, columns, rows, columns // groups, _Gemm(matrix))


def _gemv(matrix: Matrix, size: int | None) -> RawTensor:
    qweight, zeros, _unused = (
        matrix.get("qweight", INTEGERS, 2),
        matrix.get("qzeros", INTEGERS, 2),
        matrix.get("scales", SCALES, 2),
    )
    rows, columns = qweight.shape[0], qweight.shape[1] * _PER_WORD
    size = columns if size is None or size < 1 else size
    groups = columns // size
    if columns % size or not groups:
        raise matrix.wrong("qweight", _("words of a multiple of {size} inputs", size=size))
    matrix.check("scales", (rows, zeros.shape[1] * _PER_WORD))
    if zeros.shape[0] != rows or zeros.shape[1] * _PER_WORD < groups:
        raise matrix.wrong(
            "qzeros", _("words of {rows} outputs with {groups} zeros each", rows=rows, groups=groups)
        )
    return _tensor(matrix, columns, rows, size, _Gemv(matrix, columns, groups))


def _tensor(matrix: Matrix, columns: int, rows: int, size: int, source: _Gemm | _Gemv) -> RawTensor:
    scales = matrix.get("scales", SCALES, 2)
    runs, order = runs_by_group(np.arange(columns) // size, _BITS)
    nbytes = matrix.nbytes(_PARTS)
    return GroupedTensor(
        matrix.stem + ".weight",
        Layout(columns, tuple(runs), order, scales.type == "F16", nbytes, rows),
        source,
    )
