"""compressed-tensors folders (vLLM, LLM Compressor): integer codes of 2 to 8 bits, or floats.

Activations are not rounded.
"pack-quantized": `X.weight_packed` int32 (N, K bits / 32), lowest bits first, codes plus 2^(bits - 1);
`X.weight_scale` (N, G); if zero points are not 0, `X.weight_zero_point` int32 (N bits / 32, G), packed along
its columns; with activation order `X.weight_g_idx` int32 (K,); `X.weight_shape` (2,). A stack of experts has
the same tensors with a dimension in front, and three numbers as its shape.
"int-quantized": `X.weight` int8 (N, K), `X.weight_scale`, and `X.weight_zero_point` int8. `fp8`
reads 8-bit floats and `float4` those of 4 bits. A weight is (code - zero) * scale.
Source: the compressed-tensors package's description of its formats (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.bitstream import unpack_codes, words_for
from engine.weights.packed.decoded import PackedStack
from engine.weights.packed.float4 import split_float4
from engine.weights.packed.fp8 import wrap_fp8
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Recent, Zeros, runs_by_group
from engine.weights.packed.packed_tensors import INTEGERS, SCALES, Matrix, stems
from engine.weights.tensor import FileTensor
from engine.words import _

_FORMATS = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense",
    "mxfp8-quantized", "mxfp6-pack-quantized", "mxfp4-pack-quantized", "nvfp4-pack-quantized",
)  # fmt: skip
_PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape")
_STACKED = ("weight_packed", "weight_scale", "weight_zero_point")
_WIDTHS = (4, 8, 2, 3, 5, 6)


class _Source:
    """A `Source`; `codes_in`, "weight_packed" or "weight", names the tensor of codes."""

    def __init__(
        self, matrix: Matrix, codes_in: str, bits: int, columns: int, groups: int, order: Indices | None
    ) -> None:
        self._matrix, self._codes_in, self._bits, self._columns = matrix, codes_in, bits, columns
        self._groups, self._order = groups, order

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        rows = self._matrix.byte_rows(self._codes_in, outputs)
        order = None if self._order is None else self._order[start:stop]
        if self._codes_in == "weight":
            codes = rows ^ np.uint8(0x80)
            return codes[:, start:stop] if order is None else np.take(codes, order, axis=1)
        codes = unpack_codes(rows.view(np.uint32), self._bits, self._columns, order)
        return codes[:, start:stop] if order is None else codes

    def scales(self, outputs: Indices) -> Floats:
        return self._spread(self._matrix.floats("weight_scale"), outputs)

    def zeros(self, outputs: Indices) -> Zeros:
        middle = np.int16(1 << (self._bits - 1))
        zeros = self._matrix.find("weight_zero_point")
        if zeros is None:
            return np.full((outputs.size, self._groups), middle)
        if zeros.type not in INTEGERS:
            numbers = self._spread(self._matrix.floats("weight_zero_point"), outputs)
            if not (abs(numbers) <= middle).all():
                expected = _("zero points from {low} to {high}", low=-middle, high=middle)
                raise self._matrix.wrong("weight_zero_point", expected)
            return numbers.astype(np.int16) + middle
        words = self._matrix.words("weight_zero_point").T
        return unpack_codes(words, self._bits, int(outputs.max(initial=-1)) + 1).T[outputs].astype(np.int16)

    def _spread(self, values: Floats, outputs: Indices) -> Floats:
        """`values`, one number for all outputs or a row for each, as (outputs, groups)."""
        if values.size == 1:
            return np.full((outputs.size, self._groups), values.reshape(-1)[0])
        return values.reshape(-1, self._groups)[outputs]


def wrap_compressed(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config; the tensors' names and types tell which matrices are quantised.
    Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    recent, formats = Recent(), _check_settings(settings)
    floats, tensors = split_float4(tensors, "mxfp6-pack-quantized" in formats)
    packed = stems(tensors, "weight_packed")
    whole = [stem for stem in stems(tensors, "weight") if tensors[stem + ".weight"].type == "I8"]
    own = {f"{stem}.{part}" for stem in [*packed, *whole] for part in _PARTS}
    rest = {
        name: tensor
        for name, tensor in tensors.items()
        if name not in own and name.removesuffix(".weight") not in whole
    }
    out = floats | wrap_fp8(rest, _block_settings(settings))
    for stem in packed:
        out[stem + ".weight"] = _packed(Matrix(stem, tensors, recent))
    for stem in whole:
        out[stem + ".weight"] = _whole(Matrix(stem, tensors, recent))
    return out


def _groups_of(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def _check_settings(settings: Mapping[str, Any]) -> list[Any]:
    """The names of formats. Raises `UnsupportedModel` for one that cannot be read."""
    formats = [settings.get("format"), *(group.get("format") for group in _groups_of(settings))]
    sparsity = settings.get("sparsity_config")
    formats.append(sparsity.get("format") if isinstance(sparsity, dict) else None)
    unknown = [each for each in formats if each is not None and each not in _FORMATS]
    transform = settings.get("transform_config")
    if isinstance(transform, dict) and transform.get("config_groups"):
        unknown.append("transforms")
    if unknown:
        raise UnsupportedModel(
            _(
                "config.json says that the weights are in compressed-tensors' {unknown!r}, which "
                "cannot be read; {formats} can. Choose such a variant of this model, or a GGUF "
                "file.",
                unknown=str(unknown[0])[:40],
                formats=", ".join(_FORMATS),
            )
        )
    return formats


def _block_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `wrap_fp8`: the size of blocks that share a scale."""
    for group in _groups_of(settings):
        weights = group.get("weights")
        if isinstance(weights, dict) and isinstance(weights.get("block_structure"), list):
            return {"weight_block_size": weights["block_structure"]}
    return {}


def _packed(matrix: Matrix) -> RawTensor:
    found = matrix.find("weight_packed")
    size = matrix.get("weight_shape", ("I32", "I64"), 1)
    matrix.check("weight_shape", (3 if found is not None and len(found.shape) == 3 else 2,))
    *count, rows, columns = (int(each) for each in size.numbers())
    if not count:
        return packed_matrix(matrix, rows, columns)
    parts = [part for part in _STACKED if matrix.find(part) is not None]
    for part in parts:
        if not matrix.get(part, (*INTEGERS, *SCALES), 3).shape[0] == count[0] > 0:
            raise matrix.wrong(part, _("the numbers of a stack of {count} matrices", count=count[0]))
    return PackedStack(
        matrix.stem + ".weight", count[0], matrix.nbytes(_PARTS),
        lambda i: packed_matrix(matrix.part(i, parts), rows, columns),
    )  # fmt: skip


def packed_matrix(matrix: Matrix, rows: int, columns: int) -> RawTensor:
    """A matrix of packed codes, of a width that its words tell. Raises `BadCheckpoint`."""
    words, scale = matrix.get("weight_packed", INTEGERS, 2), matrix.find("weight_scale")
    if scale is None or len(scale.shape) > 2:
        matrix.get("weight_scale", SCALES, 2)
    bits = next(
        (bits for bits in _WIDTHS if columns > 0 and words.shape == (rows, words_for(columns, bits))), 0
    )
    if not bits:
        raise matrix.wrong(
            "weight_packed",
            _(
                "words of {rows} x {columns} codes of {widths} bits",
                rows=rows,
                columns=columns,
                widths=", ".join(map(str, _WIDTHS)),
            ),
        )
    return _tensor(matrix, "weight_packed", (rows, columns), bits)


def _whole(matrix: Matrix) -> RawTensor:
    weight = matrix.get("weight", ("I8",), 2)
    return _tensor(matrix, "weight", (weight.shape[0], weight.shape[1]), 8)


def _tensor(matrix: Matrix, codes_in: str, shape: tuple[int, int], bits: int) -> RawTensor:
    rows, columns = shape
    scale = matrix.find("weight_scale")
    if scale is None:
        scale = matrix.get("weight_scale", SCALES, 2)
    groups = 1 if len(scale.shape) < 2 else scale.shape[1]
    if (
        scale.type not in SCALES
        or scale.shape not in ((), (1,), (rows,), (rows, groups), (1, 1))
        or not groups
    ):
        raise matrix.wrong("weight_scale", _("numbers of shape {shape}", shape=(rows, groups)))
    _check_zeros(matrix, rows, groups, bits)
    runs, order = runs_by_group(_groups(matrix, columns, groups), bits)
    layout = Layout(
        columns, tuple(runs), order, scale.type == "F16", matrix.nbytes({*_PARTS, codes_in}), rows
    )
    return GroupedTensor(
        matrix.stem + ".weight", layout, _Source(matrix, codes_in, bits, columns, groups, order)
    )


def _check_zeros(matrix: Matrix, rows: int, groups: int, bits: int) -> None:
    zeros = matrix.find("weight_zero_point")
    if zeros is None:
        return
    if zeros.type in INTEGERS:
        matrix.check("weight_zero_point", (words_for(rows, bits), groups))
    elif zeros.type != "I8" or zeros.shape not in ((), (1,), (rows,), (rows, groups), (1, 1)):
        raise matrix.wrong("weight_zero_point", _("I8 of shape {shape}", shape=(rows, groups)))


def _groups(matrix: Matrix, columns: int, groups: int) -> Indices:
    """The group of each input."""
    index = matrix.find("weight_g_idx")
    if index is not None:
        numbers = matrix.get("weight_g_idx", (*INTEGERS, "I64"), 1).numbers().astype(np.int64)
        matrix.check("weight_g_idx", (columns,))
        if not (numbers == -1).all():  # an unused index is filled with -1
            if not 0 <= int(numbers.min()) <= int(numbers.max()) < groups:
                raise BadCheckpoint(
                    _(
                        "The tensor {index} holds groups from {lowest} to {highest}, but "
                        "{stem}.weight_scale has {groups}; the folder is damaged. Download it "
                        "again.",
                        index=index.name,
                        lowest=int(numbers.min()),
                        highest=int(numbers.max()),
                        stem=matrix.stem,
                        groups=groups,
                    )
                )
            return numbers
    if columns % groups:
        raise matrix.wrong("weight_scale", _("scales for equal groups of {columns} inputs", columns=columns))
    return np.arange(columns) // (columns // groups)
