"""Folders of optimum-quanto: quanto_qmap.json, and instead of `X.weight` its parts.

8 bits: `X.weight._data` (N, K), int8 or FP8, and `X.weight._scale` (N, 1). 4 and 2 bits: a matrix of codes
(N K / size, size), row after row of the weights in groups, of which `X.weight._data._data` holds the first
half (or fourth) of the rows in the lowest bits of its bytes; `X.weight._scale` and `X.weight._shift` have a
number for each group. A weight is scale * code - shift, or (code - shift) * scale where shifts are integers.
Nothing says what N and K are then: the model's sizes do. Scales of activations are not used.
Source: optimum-quanto 0.2.7, `tensor/packed.py`, `tensor/qbits.py` and `tensor/grouped.py` (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.fp8 import wrap_fp8
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import SCALES, Matrix, whole, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_SCALE, _DATA, _SHIFT = "weight._scale", "weight._data", "weight._shift"
_CODES = _DATA + "._data"
_PARTS = (_SCALE, _CODES, _DATA, _SHIFT)
_FLOATS, _SHIFTS = ("F8_E4M3", "F8_E5M2"), (*SCALES, "U8", "I8")
_ACTIVATIONS = (".input_scale", ".output_scale")
_FROM_HEADS, _FROM_FORWARD = (".o_proj", ".out_proj", ".dense"), (".down_proj", ".fc2", ".w2")


def wrap_quanto(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    Of the settings, "config" counts, the model's. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    found = {name: each for name, each in tensors.items() if not name.endswith(_ACTIVATIONS)}
    for name, tensor in tensors.items():
        stem = name.removesuffix("." + _DATA)
        scale = found.get(f"{stem}.{_SCALE}")
        if stem != name and tensor.type in _FLOATS and scale is not None:
            del found[name], found[f"{stem}.{_SCALE}"]
            for end, each in (("weight", tensor), ("weight_scale", scale)):
                found[f"{stem}.{end}"] = each.retyped(f"{stem}.{end}", each.type, each.shape)
    config = settings.get("config")
    out = wrapped(found, _PARTS, partial(_tensor, config if isinstance(config, dict) else {}))
    plain = {name: tensor for name, tensor in out.items() if isinstance(tensor, FileTensor)}
    others = {name: tensor for name, tensor in out.items() if name not in plain}
    return others | wrap_fp8(plain, {})


def _tensor(config: Mapping[str, Any], matrix: Matrix) -> RawTensor:
    scale = matrix.get(_SCALE, SCALES, 2)
    if matrix.find(_CODES) is None:
        return _of_bytes(matrix, scale)
    codes, shift = matrix.get(_CODES, ("U8",), 2), matrix.get(_SHIFT, _SHIFTS, 2)
    (rows, size), groups = codes.shape, scale.shape[0]
    bits = next((bits for bits in (4, 2) if rows == -(-groups * bits // 8)), 0)
    if scale.shape != (groups, 1) or not bits or not groups * size:
        raise matrix.wrong(_CODES, _("codes of 4 or 2 bits for {groups} groups", groups=groups))
    if shift.shape != scale.shape:
        raise matrix.wrong(_SHIFT, _("numbers of shape {shape}", shape=scale.shape))
    columns = _columns(config, matrix.stem)
    if not columns or columns % size or groups * size % columns:
        raise UnsupportedModel(
            _(
                "{stem}: quanto has packed a matrix whose number of inputs cannot be told; choose another "
                "variant of this model, or a GGUF file.",
                stem=matrix.stem,
            )
        )
    source = _Groups(matrix, bits, groups, size, columns, whole_shifts=shift.type not in SCALES)
    shape, nbytes = (groups * size // columns, columns), matrix.nbytes(_PARTS)
    return affine_matrix(matrix.stem + ".weight", shape, bits, columns // size, "F32", nbytes, source)


def _columns(config: Mapping[str, Any], stem: str) -> int:
    """The number of a matrix's inputs; 0 if it is unknown."""
    width, heads = whole(config.get("hidden_size")) or 0, whole(config.get("num_attention_heads")) or 0
    if stem.endswith(_FROM_FORWARD):
        return whole(config.get("intermediate_size")) or 0
    if stem.endswith(_FROM_HEADS) and heads:
        return heads * (whole(config.get("head_dim")) or width // heads)
    return width


def _of_bytes(matrix: Matrix, scale: FileTensor) -> RawTensor:
    data = matrix.get(_DATA, ("I8",), 2)
    if scale.shape != (data.shape[0], 1) or not data.nbytes:
        raise matrix.wrong(_SCALE, _("numbers of shape {shape}", shape=(data.shape[0], 1)))
    shape, nbytes = (data.shape[0], data.shape[1]), matrix.nbytes(_PARTS)
    return affine_matrix(matrix.stem + ".weight", shape, 8, 1, "F32", nbytes, _Rows(matrix))


@dataclass(frozen=True, slots=True)
class _Rows:
    """int8 numbers with a scale for each row; an `Affine`."""

    matrix: Matrix

    def codes(self, outputs: Indices) -> Bytes:
        return self.matrix.byte_rows(_DATA, outputs) ^ np.uint8(128)

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        scales = self.matrix.floats(_SCALE)[outputs]
        return scales, np.float32(-128) * scales

    def decode(self, outputs: Indices) -> Floats:
        numbers = self.matrix.byte_rows(_DATA, outputs).view(np.int8).astype(np.float32)
        values: Floats = numbers * self.matrix.floats(_SCALE)[outputs]
        return values


@dataclass(frozen=True, slots=True)
class _Groups:
    """Codes of 4 or 2 bits in `count` groups of `size` columns, of a matrix with `columns`; an `Affine`."""

    matrix: Matrix
    bits: int
    count: int
    size: int
    columns: int
    whole_shifts: bool

    def codes(self, outputs: Indices) -> Bytes:
        groups = self._groups(outputs).reshape(-1)
        rows = -(-self.count * self.bits // 8)
        found = self.matrix.byte_rows(_CODES, groups % rows)
        shifts = (self.bits * (groups // rows)).astype(np.uint8)[:, None]
        codes: Bytes = found >> shifts & np.uint8((1 << self.bits) - 1)
        return codes.reshape(outputs.size, self.columns)

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        groups = self._groups(outputs)
        scales, shifts = (self.matrix.floats(part).reshape(-1)[groups] for part in (_SCALE, _SHIFT))
        return scales, -(shifts * scales if self.whole_shifts else shifts)

    def decode(self, outputs: Indices) -> Floats:
        codes = self.codes(outputs).astype(np.float32).reshape(outputs.size, -1, self.size)
        groups = self._groups(outputs)
        scales, shifts = (
            self.matrix.floats(part).reshape(-1)[groups][:, :, None] for part in (_SCALE, _SHIFT)
        )
        values: Floats = (codes - shifts) * scales if self.whole_shifts else codes * scales - shifts
        return values.reshape(outputs.size, self.columns)

    def _groups(self, outputs: Indices) -> Indices:
        """The groups of these rows, (outputs, columns / size)."""
        each = self.columns // self.size
        return outputs[:, None] * each + np.arange(each)
