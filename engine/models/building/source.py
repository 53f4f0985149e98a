"""Where a model's parts get their weights: first from a survey of the headers, then from the loader.

The same decoder is built from both, so what is checked, counted and loaded cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.backends.base import Backend, MemoryEstimator, Weight
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.layers.parts import Linear, Norm, Order
from engine.models.layers.whole import Parts
from engine.tensors import Floats, RawTensor
from engine.weights.packed.padded import without_padding
from engine.weights.tensor import FileTensor
from engine.weights.transform.transposed import transposed, unpacked_transposed
from engine.words import N_, _, translate


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """How a matrix is stored in a tensor: `part` of a stack of `parts`, transposed, then the rows `order`; or
    one row as a `vector`. With `flipped` those rows of the tensor are the matrix's columns. `factors`
    multiply the rows of a small matrix. With `taps` the columns are this many for each input, over time. With
    `kernel` the columns have these dimensions, as those of a convolution over patches.
    """

    part: int = 0
    parts: int = 0
    transposed: bool = False
    order: npt.NDArray[np.int64] | None = None
    stored_rows: int = 0
    vector: bool = False
    flipped: bool = False
    factors: Floats | None = None
    taps: int = 0
    kernel: tuple[int, ...] = ()

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """The shape of the tensor of which this view is (rows, columns)."""
        if self.vector:
            return (columns,)
        if self.flipped:
            rows, columns = columns, rows
        stored = self.stored_rows if self.order is not None else rows
        matrix = (columns, stored) if self.transposed else (stored, columns)
        if self.taps:
            return stored, columns // self.taps, self.taps
        if self.kernel:
            return stored, *self.kernel
        return (self.parts, *matrix) if self.parts else matrix

    def of(self, tensor: RawTensor) -> RawTensor:
        """The matrix in a tensor."""
        if self.vector:
            values = tensor.dequantise()
            return FileTensor(tensor.name, "F32", (1, values.size), values.view(np.uint8))
        matrix = tensor.part(self.part) if self.parts else tensor
        matrix = transposed(matrix) if self.transposed else matrix
        matrix = matrix if self.order is None else matrix.take(self.order)
        if self.kernel and self.factors is None and matrix.type in _FLOATS and max(self.kernel[1:]) == 1:
            return FileTensor(matrix.name, matrix.type, (matrix.shape[0], self.kernel[0]), matrix.data)
        if self.factors is not None or self.taps or self.kernel:
            values = matrix.dequantise().reshape(matrix.shape[0], -1)
            values = values if self.factors is None else values * self.factors[:, None]
            return FileTensor(tensor.name, "F32", values.shape, values.reshape(-1).view(np.uint8))
        return unpacked_transposed(matrix) if self.flipped else matrix


_FLOATS = ("F32", "F16", "BF16")
"""Types of numbers one after the other, whatever the shape."""
WHOLE = View()
PARTS = (" first", " second", " third")
"""After a name in `WeightSource.linears`: the part of the matrix that a linear of `linear_parts` holds."""
_MOST_MISSING = 10_000
_SLICE = 4096
"""The rows that are unpacked at a time to find out their lengths."""


class WeightSource(Protocol):
    """Gives weights by their names in the file."""

    linears: dict[str, Linear]
    """Every `linear` by its name, for adapters."""

    def has(self, name: str) -> bool:
        """Whether the file holds this tensor."""
        ...

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        """The matrix (rows, columns)."""
        ...

    def vector(self, name: str, *shape: int) -> Floats:
        """The values of a small tensor, as float32 of this shape."""
        ...

    def lengths(self, name: str, rows: int, columns: int) -> Floats:
        """The length of each row (rows,) of a matrix."""
        ...

    def constant(self, values: Floats) -> Weight:
        """A matrix of these values (N, K) float32, which is in no file."""
        ...


def linear(
    source: WeightSource, name: str, rows: int, columns: int, bias: bool | None, view: View = WHOLE
) -> Linear:
    """`name`.weight (rows, columns) and `name`.bias (rows,); `bias` as in `ModelConfig`."""
    weight = source.matrix(name + ".weight", rows, columns, view)
    made = Linear(weight, vector_if(source, name + ".bias", bias, rows, view))
    source.linears[name] = made
    return made


def linear_parts(
    source: WeightSource, name: str, orders: tuple[Order, ...], columns: int, bias: bool | None
) -> tuple[Linear, ...]:
    """Two linears or three, each with these rows of the matrix `name`; in `WeightSource.linears` they are
    called after it and `PARTS`.
    """
    stored, made = sum(map(len, orders)), list[Linear]()
    for order, part in zip(orders, PARTS, strict=False):
        made.append(linear(source, name, len(order), columns, bias, View(order=order, stored_rows=stored)))
        source.linears[name + part] = source.linears.pop(name)
    return tuple(made)


def vector_if(
    source: WeightSource, name: str, needed: bool | None, rows: int, view: View = WHOLE
) -> Floats | None:
    """The vector (rows,) in the view's order, or None; `needed` as the biases of `ModelConfig`."""
    if needed is False or (needed is None and not source.has(name)):
        return None
    if view.order is None:
        return source.vector(name, rows)
    return np.ascontiguousarray(source.vector(name, view.stored_rows)[view.order])


def norm(
    source: WeightSource,
    name: str,
    size: int,
    eps: float,
    *,
    layer_norm: bool,
    bias: bool | None,
    offset: float = 0.0,
) -> Norm:
    """`name`.weight (size,) plus `offset`, and `name`.bias (size,); `bias` as in `ModelConfig`."""
    # Falcon-H1's GGUF files name one of their norms without the end.
    bare = source.has(name) and not source.has(name + ".weight")
    old = source.has(name + ".gamma")  # as in the first files of BERT
    weight, shift = (name + ".gamma", name + ".beta") if old else (name + ".weight", name + ".bias")
    return Norm(
        source.vector(name if bare else weight, size) + np.float32(offset),
        eps,
        vector_if(source, shift, bias, size),
        layer_norm,
    )


@dataclass(slots=True)
class _Missing:
    """Stands in for a missing matrix."""

    shape: tuple[int, ...]
    nbytes: int = 0


class Survey:
    """Reads only the headers: counts the `parameters` and the `bytes` that `backend` will hold.

    `missing` lists the missing tensors. `expert_bytes` are the bytes of experts. `parts` is the decoder built
    of specs, once it is built. `prepare` is as in `Loader`. Raises `BadCheckpoint` for a tensor of the
    wrong shape.
    """

    def __init__(
        self,
        tensors: Mapping[str, RawTensor],
        backend: MemoryEstimator,
        prepare: Callable[[RawTensor], RawTensor] | None = None,
    ) -> None:
        self._tensors, self._backend, self._prepare = tensors, backend, prepare
        self.linears: dict[str, Linear] = {}
        self.missing: list[str] = []
        self.bytes = self.expert_bytes = self.parameters = 0
        self.parts: Parts | None = None

    def has(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        """The spec of the matrix (rows, columns)."""
        tensor = self._find(name, view.shape(rows, columns), rows * columns, small=view.vector)
        if tensor is None:
            return _Missing((rows, columns))
        matrix = view.of(tensor)
        seen = self._backend.weight_spec(self._prepare(matrix) if self._prepare else matrix)
        self.bytes += seen.nbytes
        self.expert_bytes += seen.nbytes if is_expert(name) else 0
        return seen

    def vector(self, name: str, *shape: int) -> Floats:
        """Ones of this shape, read-only, that take the memory of one number."""
        size = int(np.prod(shape, dtype=np.int64))
        self._find(name, shape, size, small=True)
        self.bytes += 4 * size
        return np.broadcast_to(np.float32(1), shape)

    def lengths(self, name: str, rows: int, columns: int) -> Floats:
        self.bytes += 4 * rows
        return np.broadcast_to(np.float32(1), (rows,))

    def constant(self, values: Floats) -> Weight:
        """The spec of a matrix that is in no file."""
        seen = self._backend.weight_spec(_constant(values))
        self.bytes += seen.nbytes
        return seen

    def check(self, file_name: str) -> None:
        """Raise `BadCheckpoint` when tensors are missing."""
        if self.missing:
            missing, more = ", ".join(self.missing[:5]), len(self.missing) - 5
            words = (
                N_(
                    "{file_name} lacks tensors that its headers name: {missing} and {more} more. The "
                    "file is incomplete; download it again."
                )
                if more > 0
                else N_(
                    "{file_name} lacks tensors that its headers name: {missing}. The file is "
                    "incomplete; download it again."
                )
            )
            raise BadCheckpoint(translate(words, file_name=file_name, missing=missing, more=more))

    def _find(
        self, name: str, shape: tuple[int, ...], parameters: int, *, small: bool = False
    ) -> RawTensor | None:
        """The tensor of this shape. Small ones may have other dimensions of 1, which converters to GGUF leave
        there or drop, as its other readers allow; mlx-lm has those of a convolution's taps behind them.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            self.missing.append(name)
            if len(self.missing) > _MOST_MISSING:  # headers may name millions
                raise BadCheckpoint(
                    _(
                        "The headers name over {most_missing} tensors that are missing; the file is damaged.",
                        most_missing=_MOST_MISSING,
                    )
                )
            return None
        tensor = without_padding(tensor, shape)
        if tensor.shape != shape and not (small and _bare(tensor.shape) == _bare(shape)):
            raise BadCheckpoint(
                _(
                    "The tensor {name} has the shape {shape}, but the headers state {shape_2}; the "
                    "file is damaged.",
                    name=name,
                    shape=tensor.shape,
                    shape_2=shape,
                )
            )
        self.parameters += parameters
        return tensor


class Loader:
    """Loads weights into the backend; `bytes` counts what it holds so far.

    `prepare` may change a matrix first, for example quantise it. `views` are of each matrix, by its id, the
    name of the tensor and the view.
    """

    def __init__(
        self,
        tensors: Mapping[str, RawTensor],
        backend: Backend,
        prepare: Callable[[RawTensor], RawTensor] | None = None,
    ) -> None:
        self._tensors, self._backend, self._prepare = tensors, backend, prepare
        self.linears: dict[str, Linear] = {}
        self.views: dict[int, tuple[str, View]] = {}
        self.bytes = self.expert_bytes = 0

    def has(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        matrix = view.of(without_padding(self._tensors[name], view.shape(rows, columns)))
        weight = self._backend.load_weight(self._prepare(matrix) if self._prepare else matrix)
        self.views[id(weight)] = name, view
        self.bytes += weight.nbytes
        self.expert_bytes += weight.nbytes if is_expert(name) else 0
        return weight

    def vector(self, name: str, *shape: int) -> Floats:
        values = without_padding(self._tensors[name], shape).dequantise().reshape(shape)
        self.bytes += values.nbytes
        return values

    def lengths(self, name: str, rows: int, columns: int) -> Floats:
        matrix = without_padding(self._tensors[name], (rows, columns))
        slices = (np.arange(start, min(start + _SLICE, rows)) for start in range(0, rows, _SLICE))
        found = [np.linalg.norm(matrix.take(own).dequantise(), axis=1) for own in slices]
        self.bytes += 4 * rows
        return np.concatenate(found).astype(np.float32)

    def constant(self, values: Floats) -> Weight:
        weight = self._backend.load_weight(_constant(values))
        self.bytes += weight.nbytes
        return weight


def _constant(values: Floats) -> RawTensor:
    plain = np.ascontiguousarray(values, np.float32)
    return FileTensor("a constant", "F32", plain.shape, plain.reshape(-1).view(np.uint8))


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without the dimensions of 1."""
    return tuple(size for size in shape if size != 1)


_EXPERTS = (
    ".experts.", "_exps.", "moe.input_linear.", "moe.output_linear.", "moe.gate_proj.", "moe.up_proj.",
    "moe.down_proj.",
)  # fmt: skip


def is_expert(name: str) -> bool:
    """Whether a tensor belongs to an expert, by its name in a folder or a GGUF file."""
    return (
        any(part in name for part in _EXPERTS) or re.search(r"\.ffn_(gate|up|down)\.\d+\.", name) is not None
    )
