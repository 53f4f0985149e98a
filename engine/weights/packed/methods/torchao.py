"""torchao folders as transformers saves them: of a parameter `X.weight` there are `X._weight_qdata` and more.

8-bit integers, `qdata` int8 (N, K), `scale` and `zero_point` (N, G), are as in compressed-tensors, and so
are 8-bit floats. 4 bits: `qdata` int8 (N, K / 2), two neighbours a byte, the first in the lower half, in
two's complement; `scale` and `zero_point` (G, N): a weight is code * scale + zero_point. They are kept as
F16 beside `act_pre_scale`, by which inputs are multiplied.
Sources: torchao, `safetensors_support.py` and `int4_tensor.py`; FBGEMM, `int4_row_quantize_zp` (facts only).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import Indices, Recent
from engine.weights.packed.methods.compressed_tensors import wrap_compressed
from engine.weights.packed.packed_tensors import SCALES, Matrix, stems
from engine.weights.tensor import FileTensor
from engine.words import _

_NAME = re.compile(r"(?P<stem>.*)\._weight_(?P<part>qdata|scale|zero_point|act_pre_scale)")
_PARTS = ("qdata", "scale", "zero_point", "act_pre_scale")


def wrap_torchao(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config; the tensors tell what they are. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    own, rest = dict[str, FileTensor](), dict[str, FileTensor]()
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        (rest if match is None else own)[name if match is None else f"{match['stem']}.{match['part']}"] = (
            tensor
        )
    recent, out = Recent(), dict[str, RawTensor]()
    for stem in stems(own, "qdata"):
        matrix = Matrix(stem, own, recent)
        kind, parts = _kind(matrix), [part for part in _PARTS if matrix.find(part) is not None]
        if kind == "int4":
            out[stem + ".weight"] = _four_bits(matrix)
        elif kind and "act_pre_scale" not in parts:
            for part in parts:
                rest[f"{stem}.weight" + ("" if part == "qdata" else "_" + part)] = own[f"{stem}.{part}"]
        else:
            raise _unread(stem, own[stem + ".qdata"])
    return out | wrap_compressed(rest, {})


def _kind(matrix: Matrix) -> str:
    """ "int4", "int8" or "fp8"; "" for what cannot be read."""
    data, scale = matrix.find("qdata"), matrix.find("scale")
    if data is None or scale is None or len(data.shape) != 2 or scale.type not in SCALES:
        return ""
    if data.type.startswith("F8_E"):
        return "fp8"
    if data.type not in ("I8", "U8"):
        return ""
    zero = matrix.find("zero_point")
    return "int8" if data.type == "I8" and (zero is None or zero.type == "I8") else "int4"


def _unread(stem: str, data: FileTensor) -> UnsupportedModel:
    return UnsupportedModel(
        _(
            "torchao packed {stem} as {type} of shape {shape}, which cannot be read; choose a variant of "
            "this model with int8, float8 or plain int4 weights, or a GGUF file.",
            stem=stem,
            type=data.type,
            shape=data.shape,
        )
    )


class _Int4:
    """An `Affine`."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def codes(self, outputs: Indices) -> Bytes:
        """Plus 8."""
        rows = self._matrix.byte_rows("qdata", outputs) ^ np.uint8(0x88)
        return np.stack([rows & 15, rows >> 4], axis=2).reshape(outputs.size, -1)

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        scales = np.ascontiguousarray(self._matrix.floats("scale").T[outputs])
        return scales, self._matrix.floats("zero_point").T[outputs] - np.float32(8) * scales

    def decode(self, outputs: Indices) -> Floats:
        """Rounded after the product and the sum."""
        scales = self._matrix.floats("scale").T[outputs]
        codes = (self.codes(outputs).astype(np.float32) - 8).reshape(*scales.shape, -1)
        values: Floats = codes * scales[:, :, None] + self._matrix.floats("zero_point").T[outputs][:, :, None]
        values = values.reshape(outputs.size, -1)
        factors = self._matrix.find("act_pre_scale")
        return values if factors is None else values * self._matrix.floats("act_pre_scale").reshape(-1)


def _four_bits(matrix: Matrix) -> RawTensor:
    data, scale = matrix.get("qdata", ("I8", "U8"), 2), matrix.get("scale", SCALES, 2)
    rows, columns, groups = data.shape[0], 2 * data.shape[1], scale.shape[0]
    if scale.shape[1] != rows or not groups or columns % groups:
        raise matrix.wrong("scale", _("scales for equal groups of {columns} inputs", columns=columns))
    if matrix.get("zero_point", SCALES, 2).shape != scale.shape:
        raise matrix.wrong("zero_point", _("numbers of shape {shape}", shape=scale.shape))
    factors = matrix.find("act_pre_scale")
    if factors is not None and (factors.type not in SCALES or prod(factors.shape) != columns):
        raise matrix.wrong("act_pre_scale", _("numbers of shape {shape}", shape=(columns,)))
    name, source = matrix.stem + ".weight", _Int4(matrix)
    shape, nbytes = (rows, columns), matrix.nbytes(_PARTS)
    if factors is not None:
        return DecodedMatrix(name, "AFFINE4", shape, nbytes, source.decode)
    return affine_matrix(name, shape, 4, groups, "F32", nbytes, source)
