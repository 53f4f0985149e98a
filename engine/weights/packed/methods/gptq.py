"""GPTQ folders: `X.qweight` int32 (K bits / 32, N), `X.qzeros` int32 (G, N bits / 32), `X.scales` (G, N),
`X.g_idx` int32 (K,).

Codes are a bit stream along each column of qweight and each row of qzeros. A weight is (code - zero - 1) *
scale in the first format, (code - zero) * scale if `checkpoint_format` is "gptq_v2"; `g_idx` is the group of
each input. `marlin` has Marlin's layout. Source: arXiv 2210.17323 and the packing of AutoGPTQ and GPTQModel
(facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.bitstream import unpack_codes, words_for
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Zeros, runs_by_group
from engine.weights.packed.methods import marlin
from engine.weights.packed.packed_tensors import INTEGERS, SCALES, Matrix, whole, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_WIDTHS = (2, 3, 4, 8)
_FORMATS = {"gptq": 1, "gptq_v2": 0}
"""The number to add to a stored zero point, by `checkpoint_format`."""


class _Source:
    """A `Source` of one matrix; `added` is added to stored zero points."""

    def __init__(self, matrix: Matrix, bits: int, columns: int, order: Indices | None, added: int) -> None:
        self._matrix, self._bits, self._columns, self._order, self._added = (
            matrix,
            bits,
            columns,
            order,
            added,
        )

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        words = self._matrix.word_columns("qweight", outputs).T
        if self._order is None:
            return unpack_codes(words, self._bits, self._columns)[:, start:stop]
        return unpack_codes(words, self._bits, self._columns, self._order[start:stop])

    def scales(self, outputs: Indices) -> Floats:
        return np.ascontiguousarray(self._matrix.floats("scales").T[outputs])

    def zeros(self, outputs: Indices) -> Zeros:
        words, rows = self._matrix.words("qzeros"), self._matrix.floats("scales").shape[1]
        codes: Bytes = self._matrix.kept("zeros", lambda: unpack_codes(words, self._bits, rows))
        return codes.T[outputs].astype(np.int16) + np.int16(self._added)


def wrap_gptq(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    kind = _kind(settings)
    if kind == "marlin":
        return wrapped(tensors, marlin.PARTS, marlin.marlin_matrix)
    added = _FORMATS[kind]
    return wrapped(tensors, _PARTS, lambda matrix: _tensor(matrix, settings, added))


def _kind(settings: Mapping[str, Any]) -> str:
    """The format: one of `_FORMATS`, or "marlin". Raises `UnsupportedModel` for unknown ones."""
    kind = str(settings.get("checkpoint_format") or settings.get("format") or "gptq").lower()
    if settings.get("is_marlin_format"):
        kind = "marlin"
    if kind not in (*_FORMATS, "marlin"):
        raise UnsupportedModel(
            _(
                "config.json says that the GPTQ weights have the checkpoint_format {kind!r}, which "
                "cannot be read; {formats} can. Choose such a variant of this model, or a GGUF "
                "file.",
                kind=kind[:40],
                formats=", ".join((*_FORMATS, "marlin")),
            )
        )
    return kind


def _tensor(matrix: Matrix, settings: Mapping[str, Any], added: int) -> RawTensor:
    qweight = matrix.get("qweight", INTEGERS, 2)
    scales, _unused = matrix.get("scales", SCALES, 2), matrix.get("qzeros", INTEGERS, 2)
    words, rows = qweight.shape
    bits, columns = _bits_and_columns(matrix, words, settings)
    groups = scales.shape[0]
    matrix.check("scales", (groups, rows))
    zeros = matrix.get("qzeros", INTEGERS, 2)
    if zeros.shape[0] != groups or zeros.shape[1] < words_for(rows, bits):
        raise matrix.wrong(
            "qzeros",
            _(
                "words of shape {shape} for {bits}-bit zeros",
                shape=(groups, words_for(rows, bits)),
                bits=bits,
            ),
        )
    runs, order = runs_by_group(_groups(matrix, columns, groups, settings), bits)
    half = scales.type == "F16"
    layout = Layout(columns, tuple(runs), order, half, matrix.nbytes(_PARTS), rows)
    return GroupedTensor(matrix.stem + ".weight", layout, _Source(matrix, bits, columns, order, added))


def _bits_and_columns(matrix: Matrix, words: int, settings: Mapping[str, Any]) -> tuple[int, int]:
    """The width of a code, and K. Tensors take precedence, since settings are wrong for some matrices."""
    index = matrix.find("g_idx")
    claimed = whole(settings.get("bits", settings.get("w_bit")))
    if index is not None and len(index.shape) == 1 and index.shape[0]:
        columns = index.shape[0]
        for bits in dict.fromkeys((claimed, *_WIDTHS)):
            if bits in _WIDTHS and words_for(columns, bits) == words:
                return bits, columns
        raise matrix.wrong(
            "qweight",
            _("{columns} inputs of {widths} bits", columns=columns, widths=", ".join(map(str, _WIDTHS))),
        )
    zeros, rows = matrix.get("qzeros", INTEGERS, 2), matrix.get("scales", SCALES, 2).shape[1]
    if claimed in _WIDTHS:
        fitting = (bits for bits in (claimed, *_WIDTHS) if zeros.shape[1] == words_for(rows, bits))
        claimed = next(fitting, claimed)
    else:
        raise UnsupportedModel(
            _(
                "config.json says that the GPTQ weights have {settings} bits; {widths} can be read. "
                "Choose such a variant of this model, or a GGUF file.",
                settings=str(settings.get("bits"))[:40],
                widths=", ".join(map(str, _WIDTHS)),
            )
        )
    return claimed, words * 32 // claimed


def _groups(matrix: Matrix, columns: int, groups: int, settings: Mapping[str, Any]) -> Indices:
    """The group of each input."""
    index = matrix.find("g_idx")
    if index is not None:
        numbers = matrix.get("g_idx", (*INTEGERS, "I64"), 1).numbers().astype(np.int64)
        matrix.check("g_idx", (columns,))
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < groups:
            raise BadCheckpoint(
                _(
                    "The tensor {index} holds the group {highest}, but {stem}.scales has {groups} "
                    "groups; the folder is damaged. Download it again.",
                    index=index.name,
                    highest=int(numbers.max() if numbers.max() >= groups else numbers.min()),
                    stem=matrix.stem,
                    groups=groups,
                )
            )
        if groups == 1 or numbers.any():
            return numbers
    size = whole(settings.get("group_size", settings.get("q_group_size")))
    if size is None or size < 1 or -(-columns // size) != groups:
        size = -(-columns // max(1, groups))
        if groups < 1 or -(-columns // size) != groups:
            raise matrix.wrong("scales", _("scales for groups of {columns} inputs", columns=columns))
    return np.arange(columns) // size
