"""HQQ folders as transformers saves them: codes `X.W_q`, and beside them `X.scale`, `X.zero` and settings.

The matrix (N, K), row after row, is cut into groups of `X.group_size`: with `X.axis` 1 they are the rows of
a matrix of codes (N K / size, size), with 0 its columns (size, N K / size); `X.scale` and `X.zero` have a
number for each. A weight is (code - zero) * scale. Codes are packed along the first dimension: in bytes the
first half, or fourth, or eighth of the rows stands in the upper bits; 3 bits are ten to an int32, the first
tenth in bits 27 to 29. Bytes may lie in numbers of another type (`X.view_as_float`). With groups in rows,
codes are kept with the float32 bias -zero * scale, others as F16.
Source: hqq, `core/quantize.py` and `core/bitpack.py` (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import SCALES, Matrix, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = (
    "W_q", "scale", "zero", "nbits", "group_size", "shape", "axis", "packing", "view_as_float",
    "unpack_view_dtype", "compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config",
    "channel_wise", "optimize", "round_zero", "quant_scale", "quant_zero",
)  # fmt: skip
_PACKED: dict[str, tuple[int, int, str]] = {
    "8bit_u8": (8, 1, "U8"), "4bit_u8": (4, 2, "U8"), "2bit_u8": (2, 4, "U8"), "1bit_u8": (1, 8, "U8"),
    "3bit_32": (3, 10, "I32"),
}  # fmt: skip
"""By `packing`: the bits of a code, how many lie in a number, and its type."""
_SMALL = ("U8", "I32", "I64", "F32")


def wrap_hqq(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    Reads the settings of each matrix, a few dozen bytes. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    return wrapped(tensors, _PARTS, _tensor)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of a matrix of `columns` inputs: `count` of `size` values, in rows or columns of codes.

    An `Affine` where groups are parts of the matrix's rows.
    """

    matrix: Matrix
    packing: str
    count: int
    size: int
    in_rows: bool
    columns: int

    def codes(self, outputs: Indices) -> Bytes:
        return self._with_groups(outputs)[0]

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        """The product of fp16 or bf16 numbers is exact."""
        scales, zeros = self._scales_and_zeros()
        groups = outputs[:, None] * (self.columns // self.size) + np.arange(self.columns // self.size)
        return scales[groups], -(zeros * scales)[groups]

    def _with_groups(self, outputs: Indices) -> tuple[Bytes, Indices]:
        """The codes of these rows (outputs, K), and their groups: (outputs, G), or (outputs, K) where groups
        are no parts of rows.
        """
        packed, bits = self.matrix.kept("codes", self._packed), _PACKED[self.packing][0]
        if self.whole:
            groups = outputs[:, None] * (self.columns // self.size) + np.arange(self.columns // self.size)
            rows = groups.reshape(-1)
            found, places = packed[rows % len(packed)], (rows // len(packed))[:, None]
        else:
            values = outputs[:, None] * self.columns + np.arange(self.columns)
            at, across = np.divmod(values, self.size if self.in_rows else self.count)
            groups = at if self.in_rows else across
            found, places = packed[at % len(packed), across], at // len(packed)
        shifts = ((27 if bits == 3 else 8 - bits) - bits * places).astype(packed.dtype)
        codes: Bytes = (found >> shifts & packed.dtype.type((1 << bits) - 1)).astype(np.uint8)
        return codes.reshape(outputs.size, -1), groups

    @property
    def whole(self) -> bool:
        """Whether groups are parts of the matrix's rows."""
        return self.in_rows and self.columns % self.size == 0

    def _packed(self) -> Any:
        tensor = self.matrix.find("W_q")
        assert tensor is not None
        return tensor.retyped(tensor.name, _PACKED[self.packing][2], self.packed_shape).numbers()

    @property
    def packed_shape(self) -> tuple[int, int]:
        """The numbers that hold the codes."""
        many, shape = (
            _PACKED[self.packing][1],
            (self.count, self.size) if self.in_rows else (self.size, self.count),
        )
        return -(-shape[0] // many), shape[1]

    def _scales_and_zeros(self) -> tuple[Floats, Floats]:
        """Those of each group."""
        return self.matrix.floats("scale").reshape(-1), self.matrix.floats("zero").reshape(-1)

    def decode(self, outputs: Indices) -> Floats:
        """Rounded after the difference and the product."""
        codes, groups = self._with_groups(outputs)
        scales, zeros = self._scales_and_zeros()
        each = codes.astype(np.float32).reshape(*groups.shape, -1)
        values: Floats = (each - zeros[groups][:, :, None]) * scales[groups][:, :, None]
        return values.reshape(codes.shape)


def _tensor(matrix: Matrix) -> RawTensor:
    weight, packing = matrix.find("W_q"), _text(matrix, "packing")
    shape = tuple(int(each) for each in matrix.get("shape", _SMALL, 1).numbers())
    if packing not in _PACKED or len(shape) != 2 or matrix.find("meta_scale") or matrix.find("zero_scale"):
        raise UnsupportedModel(
            _(
                "HQQ packed {stem} as {packing!r} of shape {shape}, which cannot be read; choose another "
                "variant of this model, or a GGUF file.",
                stem=matrix.stem,
                packing=packing[:40],
                shape=shape,
            )
        )
    in_rows, values = _number(matrix, "axis", 1) == 1, prod(shape)
    size = _number(matrix, "group_size", shape[1] if in_rows else shape[0])
    if values < 1 or size < 1 or values % size:
        raise matrix.wrong("shape", _("a shape of groups of {size} values", size=size))
    groups = _Groups(matrix, packing, values // size, size, in_rows, shape[1])
    assert weight is not None
    if weight.nbytes != prod(groups.packed_shape) * (4 if packing == "3bit_32" else 1):
        raise matrix.wrong("W_q", _("{packing} codes of shape {shape}", packing=packing, shape=shape))
    for part in ("scale", "zero"):
        found = matrix.find(part)
        if found is None or found.type not in SCALES or prod(found.shape) != groups.count:
            matrix.get(part, SCALES, 2)
            raise matrix.wrong(part, _("numbers of shape {shape}", shape=(groups.count, 1)))
    name, nbytes = matrix.stem + ".weight", matrix.nbytes(_PARTS)
    bits, matrix_shape = _PACKED[packing][0], (shape[0], shape[1])
    if groups.whole:
        # a code of one bit is one of two whose upper bit is 0
        return affine_matrix(name, matrix_shape, max(2, bits), shape[1] // size, "F32", nbytes, groups)
    return DecodedMatrix(name, f"HQQ{bits}", matrix_shape, nbytes, groups.decode)


def _text(matrix: Matrix, part: str) -> str:
    """A text, which is stored as the numbers of its characters."""
    return bytes(matrix.get(part, ("U8",), 1).data[:40]).decode("latin-1")


def _number(matrix: Matrix, part: str, default: int) -> int:
    """A whole number; the default where it is missing."""
    tensor = matrix.find(part)
    if tensor is None:
        return default
    if tensor.type not in _SMALL or prod(tensor.shape) != 1:
        raise matrix.wrong(part, _("one number"))
    return int(tensor.numbers().reshape(-1)[0])
