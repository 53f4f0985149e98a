"""MLX folders: `X.weight` uint32 (N, K bits / 32), a stream of codes along each row, lowest bits first.

"affine": `X.scales` and `X.biases` (N, G), a weight is code * scale + bias. "mxfp4", "mxfp8" and "nvfp4" have
`X.scales` of bytes alone: powers of two for 32 inputs, or F8_E4M3 for 16. A single matrix may have settings
under its name; the mode is then theirs, or "affine". A stack of experts has the same tensors with a dimension
for the experts in front. transformers' "metal" is "affine" with `X.qbiases`.
Sources: MLX, documentation of `mlx.core.quantize` and `nn.quantize`, and mlx-lm, `utils.py`; transformers,
`integrations/metal_quantization.py` (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.bitstream import unpack_codes
from engine.weights.packed.decoded import PackedStack
from engine.weights.packed.float4 import mxfp4_matrix, nvfp4_matrix
from engine.weights.packed.fp8 import fp8_matrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import INTEGERS, SCALES, Matrix, whole, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("scales", "biases", "weight")
_WIDTHS = (2, 3, 4, 5, 6, 8)
_FLOATS = {"mxfp4": ("F8_E8M0", 4), "mxfp8": ("F8_E8M0", 8), "nvfp4": ("F8_E4M3", 4)}
"""The type of scales, and the width of a number."""
_BLOCK = 32
_METAL_BITS = 4
"""Where the config states none."""


def wrap_mlx(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    return wrapped(tensors, _PARTS, lambda matrix: _tensor(matrix, settings))


def wrap_metal(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The same of a folder that transformers quantised for Metal. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    named = {
        name.removesuffix("qbiases") + "biases" if name.endswith(".qbiases") else name: tensor
        for name, tensor in tensors.items()
    }
    return wrap_mlx(named, {"bits": settings.get("bits", _METAL_BITS)})


def _tensor(matrix: Matrix, settings: Mapping[str, Any]) -> RawTensor:
    own = settings.get(matrix.stem)
    settings = {"bits": settings.get("bits"), **own} if isinstance(own, dict) else settings
    mode, bits = settings.get("mode") or "affine", whole(settings.get("bits"))
    if mode not in ("affine", *_FLOATS) or (mode == "affine" and bits not in _WIDTHS):
        raise UnsupportedModel(
            _(
                "config.json says that MLX packed {stem} as {mode!r} of {bits} bits, which cannot be read; "
                "choose another variant of this model, or a GGUF file.",
                stem=matrix.stem,
                mode=str(mode)[:40],
                bits=str(settings.get("bits"))[:40],
            )
        )

    def packed(single: Matrix) -> RawTensor:
        return _affine(single, bits or 0) if mode == "affine" else _floats(single, mode)

    weight = matrix.find("weight")
    if weight is None or len(weight.shape) != 3:
        return packed(matrix)
    parts, types = (_PARTS, SCALES) if mode == "affine" else (("scales", "weight"), ("U8",))
    count = weight.shape[0]
    for part in parts[:-1]:
        if not matrix.get(part, types, 3).shape[0] == count > 0:
            raise matrix.wrong(part, _("the numbers of a stack of {count} matrices", count=count))
    return PackedStack(
        matrix.stem + ".weight", count, matrix.nbytes(parts), lambda i: packed(matrix.part(i, parts))
    )


def _floats(matrix: Matrix, mode: str) -> RawTensor:
    weight = matrix.get("weight", INTEGERS, 2)
    kind, width = _FLOATS[mode]
    scales = matrix.get("scales", ("U8",), 2)
    scales = scales.retyped(scales.name, kind, scales.shape)
    rows, words = weight.shape
    if width == 8:
        numbers = weight.retyped(weight.name, "F8_E4M3", (rows, 4 * words))
        return fp8_matrix(numbers, scales, (1, _BLOCK))
    numbers = weight.retyped(weight.name, "U8", (rows, 4 * words))
    if kind == "F8_E8M0":
        return mxfp4_matrix(weight.name, numbers, scales)
    return nvfp4_matrix(weight.name, numbers, scales)


class _Affine:
    """An `Affine`."""

    def __init__(self, matrix: Matrix, bits: int, columns: int) -> None:
        self._matrix, self._bits, self._columns = matrix, bits, columns

    def codes(self, outputs: Indices) -> Bytes:
        rows = self._matrix.byte_rows("weight", outputs)
        return unpack_codes(rows.view(np.uint32), self._bits, self._columns)

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        return self._matrix.floats("scales")[outputs], self._matrix.floats("biases")[outputs]

    def decode(self, outputs: Indices) -> Floats:
        """Rounded after the product and the sum."""
        scales, biases = self.numbers(outputs)
        codes = self.codes(outputs).astype(np.float32).reshape(*scales.shape, -1)
        values: Floats = codes * scales[:, :, None] + biases[:, :, None]
        return values.reshape(outputs.size, -1)


def _affine(matrix: Matrix, bits: int) -> RawTensor:
    rows, words = matrix.get("weight", INTEGERS, 2).shape
    columns, scales = words * 32 // bits, matrix.get("scales", SCALES, 2)
    groups = scales.shape[1]
    if scales.shape[0] != rows or not groups or words * 32 % bits or columns % groups:
        raise matrix.wrong("scales", _("scales for equal groups of {columns} inputs", columns=columns))
    if matrix.get("biases", SCALES, 2).shape != scales.shape:
        raise matrix.wrong("biases", _("numbers of shape {shape}", shape=scales.shape))
    kind = scales.type if matrix.get("biases", SCALES, 2).type == scales.type else "F32"
    source, nbytes = _Affine(matrix, bits, columns), matrix.nbytes(_PARTS)
    return affine_matrix(matrix.stem + ".weight", (rows, columns), bits, groups, kind, nbytes, source)
