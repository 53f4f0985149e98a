"""VPTQ folders: v neighbouring outputs of an input are the sum of one vector from each of two codebooks.

The inputs are G groups of S. `X.indices` (G, outputs / v, words) int32 has for the inputs of a group a stream
of pairs, lowest bit first: the number of a vector of `X.centroids.weight` (G, n v), and in higher bits, where
there is one, that of `X.res_centroids.weight` (G, m v). Before these inputs stand the outliers, with numbers
`X.outlier_indices` (1, outputs / w, O) of `X.outlier_centroids.weight` (1, q w). Input i of the result is
then the one at whose place `X.perm` says i; it is multiplied by `X.weight_scale`, and `X.weight_bias`
(inputs,) is added; with a `norm_dim` of 1 both are of outputs. The numbers of vectors and their lengths are
in the settings, for each matrix. Kept as F16. Sources: Microsoft's VPTQ, `vptq/layers/vqlinear.py` (facts
only); arXiv 2409.17066.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.weights.format import Floats
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import SCALES, Matrix, whole, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = (
    "indices", "centroids.weight", "res_centroids.weight", "outlier_indices", "outlier_centroids.weight",
    "perm", "weight_scale", "weight_bias",
)  # fmt: skip
_SHORT, _MOST_LENGTH = ("I16", "U16"), 64


def wrap_vptq(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint`.
    """
    own, shared = (
        found if isinstance(found, dict) else {}
        for found in (settings.get("config_for_layers"), settings.get("shared_layer_config"))
    )

    def made(matrix: Matrix) -> RawTensor:
        parts = matrix.stem.split(".")
        return _tensor(matrix, _sizes(matrix.stem, own.get(matrix.stem) or shared.get(".".join(parts[1:2]))))

    return wrapped(tensors, _PARTS, made)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of a matrix: its shape, the inputs of a group, the vectors in each codebook (0: there is none), and
    their lengths.
    """

    outputs: int
    inputs: int
    group: int
    vectors: int
    residual: int
    outliers: int
    length: int
    outlier_length: int
    by_output: bool
    """Whether outputs have scales, rather than inputs."""

    @property
    def bits(self) -> tuple[int, int]:
        """Of the numbers of both vectors."""
        return (self.vectors - 1).bit_length(), max(0, self.residual - 1).bit_length()


def _sizes(stem: str, found: Any) -> _Sizes:
    found = found if isinstance(found, dict) else {}

    def number(value: Any, name: str, low: int, most: int) -> int:
        if whole(value) is None or not low <= value <= most:
            raise BadCheckpoint(
                _(
                    "config.json: {name} of {stem} is {value}; whole numbers from {low} to {most} were "
                    "expected. Download the model again.",
                    name=name,
                    stem=stem,
                    value=str(found.get(name))[:40],
                    low=low,
                    most=most,
                )
            )
        return int(value)

    def pair(name: str, most: int) -> list[int]:
        values = found.get(name)
        values = values if isinstance(values, list) and len(values) == 2 else [None, None]
        return [max(0, number(value, name, -1, most)) for value in values]

    outputs, inputs, group = (
        number(found.get(name), name, 1, 1 << 24) for name in ("out_features", "in_features", "group_size")
    )
    (outliers, vectors), (outlier_length, length) = (
        pair("num_centroids", 1 << 16), pair("vector_lens", _MOST_LENGTH)
    )  # fmt: skip
    residual = pair("num_res_centroids", 1 << 16)[1]
    number(vectors, "num_centroids", 2, 1 << 16)
    number(length, "vector_lens", 1, _MOST_LENGTH)
    outliers = outliers if outlier_length > 1 else 0
    return _Sizes(
        outputs, inputs, group, vectors, residual, outliers, length, max(1, outlier_length),
        number(found.get("norm_dim", 0), "norm_dim", 0, 1) == 1,
    )  # fmt: skip


def _tensor(matrix: Matrix, sizes: _Sizes) -> RawTensor:
    indices = matrix.get("indices", ("I32",), 3)
    groups, outliers = indices.shape[0], _checked(matrix, sizes, indices)

    def decode(rows: Indices) -> Floats:
        parts = [_outliers(matrix, sizes, rows)] if outliers else []
        parts += [_group(matrix, sizes, indices.part(group), group, rows) for group in range(groups)]
        values: Floats = np.concatenate(parts, axis=1)
        if matrix.find("perm") is not None:
            values = values[:, matrix.kept("order", lambda: _order(matrix))]
        if matrix.find("weight_scale") is not None:
            scale, shift = (matrix.floats(part) for part in ("weight_scale", "weight_bias"))
            if sizes.by_output:
                scale, shift = scale[rows, None], shift[rows, None]
            values = values * scale + shift
        return values

    shape = sizes.outputs, sizes.inputs
    return DecodedMatrix(matrix.stem + ".weight", "VPTQ", shape, matrix.nbytes(_PARTS), decode)


def _checked(matrix: Matrix, sizes: _Sizes, indices: FileTensor) -> int:
    """The number of outliers. Raises `BadCheckpoint` where a tensor does not fit the others."""
    groups, outliers = indices.shape[0], 0
    places, words = -(-sizes.outputs // sizes.length), -(-sizes.group * sum(sizes.bits) // 32)
    matrix.check("indices", (groups, places, words))
    books = {"centroids.weight": (groups, sizes.vectors * sizes.length)}
    if sizes.residual:
        books["res_centroids.weight"] = groups, sizes.residual * sizes.length
    if sizes.outliers:
        books["outlier_centroids.weight"] = 1, sizes.outliers * sizes.outlier_length
        outliers = matrix.get("outlier_indices", _SHORT, 3).shape[2]
        matrix.check("outlier_indices", (1, -(-sizes.outputs // sizes.outlier_length), outliers))
    moved, normed = (matrix.find(part) is not None for part in ("perm", "weight_scale"))
    made = outliers + groups * sizes.group
    if made < sizes.inputs or (made > sizes.inputs and not moved):
        raise matrix.wrong("indices", _("numbers for {inputs} inputs", inputs=sizes.inputs))
    for part, shape in books.items():
        matrix.get(part, SCALES, 2)
        matrix.check(part, shape)
    if moved:
        matrix.get("perm", _SHORT, 1)
    for part in ("weight_scale", "weight_bias") if normed else ():
        matrix.get(part, SCALES, 1)
        matrix.check(part, (sizes.outputs if sizes.by_output else sizes.inputs,))
    matrix.check("perm", (sizes.inputs,))
    return outliers


def _group(matrix: Matrix, sizes: _Sizes, indices: RawTensor, group: int, rows: Indices) -> Floats:
    """The inputs of a group: (rows, S)."""
    places, inside = np.divmod(rows, sizes.length)
    different, which = np.unique(places, return_inverse=True)
    words = indices.take(different).data.view("<u4").reshape(len(different), -1).astype(np.uint64)
    words = np.pad(words, ((0, 0), (0, 1)))
    first, second = sizes.bits
    begin = np.arange(sizes.group) * (first + second)
    word, shift = begin >> 5, (begin & 31).astype(np.uint64)
    pairs = (words[:, word] | words[:, word + 1] << np.uint64(32)) >> shift
    numbers = (pairs & np.uint64((1 << first) - 1)).astype(np.int64)
    values = _book(matrix, "centroids.weight", group, sizes.vectors, numbers)
    if sizes.residual:
        more = (pairs >> np.uint64(first) & np.uint64((1 << second) - 1)).astype(np.int64)
        values = values + _book(matrix, "res_centroids.weight", group, sizes.residual, more)
    return values[which, :, inside]


def _outliers(matrix: Matrix, sizes: _Sizes, rows: Indices) -> Floats:
    """The inputs that have a codebook of their own: (rows, O)."""
    places, inside = np.divmod(rows, sizes.outlier_length)
    different, which = np.unique(places, return_inverse=True)
    held = matrix.get("outlier_indices", _SHORT, 3).part(0).take(different)
    numbers = held.data.view("<u2").reshape(len(different), -1).astype(np.int64)
    return _book(matrix, "outlier_centroids.weight", 0, sizes.outliers, numbers)[which, :, inside]


def _book(matrix: Matrix, part: str, group: int, vectors: int, numbers: Indices) -> Floats:
    """The vectors of these numbers. Raises `BadCheckpoint` for numbers of none."""
    if numbers.max(initial=0) >= vectors:
        raise matrix.wrong(part, _("more than {number} vectors", number=int(numbers.max())))
    found: Floats = matrix.floats(part)[group].reshape(vectors, -1)[numbers]
    return found


def _order(matrix: Matrix) -> Indices:
    """The place of each input among those that are stored."""
    order: Indices = np.argsort(matrix.get("perm", _SHORT, 1).data.view("<u2"), kind="stable")
    return order
