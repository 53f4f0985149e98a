"""Matrices of 4-bit integers as ModelOpt's AWQ writes them (W4A16_AWQ).

`X.weight` uint8 (N / 2, K): of two neighbouring outputs the first in the lower half, in two's complement;
`X.weight_scale` (N, G); inputs may be multiplied by `X.pre_quant_scale` (K,), which is as good as multiplying
the matrix's columns. Stacks of experts have a dimension in front. Source: ModelOpt, `export/quant_utils.py`
(facts only).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.decoded import DecodedMatrix, PackedStack
from engine.weights.packed.grouped import Indices, Recent
from engine.weights.packed.packed_tensors import SCALES, Matrix
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("weight", "weight_scale", "pre_quant_scale")
_UNUSED = "input_scale"
_GLOBAL = "weight_scale_2"
"""What ModelOpt's W4A8 has besides, which is another format."""


def split_int4(tensors: Mapping[str, FileTensor]) -> tuple[dict[str, RawTensor], dict[str, FileTensor]]:
    """The matrices of 4-bit integers, each as one tensor X.weight, and the other tensors.

    Raises `BadCheckpoint`.
    """
    recent, out, own = Recent(), dict[str, RawTensor](), set[str]()
    for name, tensor in tensors.items():
        stem, scale = name.removesuffix(".weight"), tensors.get(name + "_scale")
        if (
            stem == name or tensor.type != "U8" or scale is None or scale.type not in SCALES
            or f"{stem}.{_GLOBAL}" in tensors or not tensor.shape[:-1]
            or scale.shape[:-1] != (*tensor.shape[:-2], 2 * tensor.shape[-2])
        ):  # fmt: skip
            continue
        matrix = Matrix(stem, tensors, recent)
        out[name] = _stack(matrix, tensor) if len(tensor.shape) == 3 else _matrix(matrix)
        own |= {f"{stem}.{part}" for part in (*_PARTS, _UNUSED)}
    return out, {name: tensor for name, tensor in tensors.items() if name not in own}


class _Int4:
    """An `Affine`."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def codes(self, outputs: Indices) -> Bytes:
        """Plus 8."""
        rows, inverse = np.unique(outputs // 2, return_inverse=True)
        pairs = self._matrix.byte_rows("weight", rows)[inverse] ^ np.uint8(0x88)
        upper = (outputs % 2 == 1)[:, None]
        return np.where(upper, pairs >> 4, pairs & 15)

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        scales = self._matrix.floats("weight_scale")[outputs]
        return scales, np.float32(-8) * scales

    def decode(self, outputs: Indices) -> Floats:
        scales = self._matrix.floats("weight_scale")[outputs]
        codes = (self.codes(outputs).astype(np.float32) - 8).reshape(*scales.shape, -1)
        values: Floats = (codes * scales[:, :, None]).reshape(outputs.size, -1)
        factors = self._matrix.find("pre_quant_scale")
        return values if factors is None else values * self._matrix.floats("pre_quant_scale")


def _stack(matrix: Matrix, codes: FileTensor) -> RawTensor:
    parts = [part for part in _PARTS if matrix.find(part) is not None]
    for part in parts:
        found = matrix.find(part)
        if found is None or found.shape[:1] != codes.shape[:1] or not codes.shape[0]:
            raise matrix.wrong(part, _("the numbers of a stack of {count} matrices", count=codes.shape[0]))
    return PackedStack(
        matrix.stem + ".weight", codes.shape[0], matrix.nbytes(_PARTS),
        lambda i: _matrix(matrix.part(i, parts)),
    )  # fmt: skip


def _matrix(matrix: Matrix) -> RawTensor:
    codes, scale = matrix.get("weight", ("U8",), 2), matrix.get("weight_scale", SCALES, 2)
    (rows, groups), columns = scale.shape, codes.shape[1]
    if not groups or columns % groups:
        raise matrix.wrong("weight_scale", _("scales for equal groups of {columns} inputs", columns=columns))
    name, source, nbytes = matrix.stem + ".weight", _Int4(matrix), matrix.nbytes(_PARTS)
    if matrix.find("pre_quant_scale") is None:
        return affine_matrix(name, (rows, columns), 4, groups, scale.type, nbytes, source)
    matrix.get("pre_quant_scale", SCALES, 1)
    matrix.check("pre_quant_scale", (columns,))
    return DecodedMatrix(name, "AFFINE4", (rows, columns), nbytes, source.decode)
