"""Projectors: from the rows of a tower to those of the language model."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.layers.parts import FeedForward, Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.merging import Merge, averaged, joined
from engine.vision.layers.tower import activated
from engine.vision.passes import OfPasses, Pass, Prepared


class Tokens(Prepared, Protocol):
    """Makes the tokens of a crop of what a tower makes of its patches. Used by one thread."""

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        """The tokens (n, N) of a grid of patches (rows * columns, E); yields between short steps."""
        ...


class TokensShape(Protocol):
    """What makes tokens of patches, before its weights are loaded; `outputs` is the width of tokens."""

    @property
    def outputs(self) -> int: ...

    def build(self, source: WeightSource, names: ProjectorNames) -> Any:
        """Its parts. Raises `BadCheckpoint` for tensors of the wrong shape."""
        ...

    def tokens(self, backend: Backend, parts: Any, most: int) -> Tokens:
        """What runs the parts that `build` made, for crops of at most this many patches."""
        ...


@dataclass(frozen=True, slots=True)
class ProjectorShape:
    """norm, then one linear layer, or two of `hidden` numbers with an `activation` between them; K -> N.

    Before it, squares of `factor` patches are merged by `merge`. `norm` is "layer", "rms" or "none", `offset`
    is added to its weight. If `transposed`, the first matrix is stored so. With `make`, what that builds
    follows the norm, in place of linear layers.
    """

    inputs: int
    outputs: int
    hidden: int = 0
    activation: str = "gelu"
    norm: str = "none"
    eps: float = 1e-5
    offset: float = 0.0
    factor: int = 1
    merge: Merge = joined
    transposed: bool = False
    make: Callable[[WeightSource], FeedForward] | None = None

    def build(self, source: WeightSource, names: ProjectorNames) -> Projector:
        """As `TokensShape.build`."""
        return projector(source, self, names)

    def tokens(self, backend: Backend, parts: Projector, most: int) -> ProjectorPass:
        """As `TokensShape.tokens`."""
        return ProjectorPass(backend, self, parts, most)


@dataclass(frozen=True, slots=True)
class ProjectorNames:
    """The names of its tensors. The `first` matrix's may be that of the whole tensor."""

    first: str = ""
    second: str = ""
    norm: str = ""


@dataclass(frozen=True, slots=True)
class Projector:
    """Merged rows (T, K) -> (T, N)."""

    last: Linear | FeedForward
    norm: Norm | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.last(ops, self.norm(ops, x) if self.norm else x)


def projector(source: WeightSource, shape: ProjectorShape, names: ProjectorNames) -> Projector:
    """Build it. Raises `BadCheckpoint` for tensors of the wrong shape."""
    before = None
    if shape.norm != "none":
        layer = shape.norm == "layer"
        before = norm(
            source, names.norm, shape.inputs, shape.eps, layer_norm=layer, bias=None if layer else False,
            offset=shape.offset,
        )  # fmt: skip
    if shape.make is not None:
        return Projector(shape.make(source), before)
    view = View(transposed=True) if shape.transposed else WHOLE
    if not shape.hidden:
        if source.has(names.first):  # named without an end
            return Projector(Linear(source.matrix(names.first, shape.outputs, shape.inputs, view)), before)
        return Projector(linear(source, names.first, shape.outputs, shape.inputs, None, view), before)
    first = linear(source, names.first, shape.hidden, shape.inputs, None, view)
    second = linear(source, names.second, shape.outputs, shape.hidden, None)
    return Projector(activated(first, second, shape.activation), before)


class ProjectorPass(OfPasses):
    """`Tokens` of merged patches."""

    def __init__(self, backend: Backend, shape: ProjectorShape, parts: Projector, most: int) -> None:
        self._shape = shape
        self._merged = np.zeros((most // shape.factor**2, shape.inputs), np.float32)
        self._run = Pass(backend, partial(_projected, parts, self._merged), len(self._merged))
        super().__init__(self._run)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        merged = self._shape.merge(states, rows, columns, self._shape.factor)
        self._merged[: len(merged)] = merged
        yield Waiting()
        return self._run.run(len(merged)).copy()


@dataclass(frozen=True, slots=True)
class AveragedShape:
    """A `TokensShape`: what `each` makes of patches, of which the mean of each square of `factor` follows."""

    each: ProjectorShape
    factor: int

    @property
    def outputs(self) -> int:
        return self.each.outputs

    def build(self, source: WeightSource, names: ProjectorNames) -> Projector:
        return self.each.build(source, names)

    def tokens(self, backend: Backend, parts: Projector, most: int) -> AveragedPass:
        return AveragedPass(self.each.tokens(backend, parts, most), self.factor)


class AveragedPass(OfPasses):
    """`Tokens` of averaged squares."""

    def __init__(self, each: ProjectorPass, factor: int) -> None:
        self._each, self._factor = each, factor
        super().__init__(each)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        found = yield from self._each.rows(states, rows, columns)
        return averaged(found, rows, columns, self._factor)


def _projected(projector: Projector, merged: Floats, ops: Ops) -> Array:
    return ops.last_rows(projector(ops, ops.given(merged)))
