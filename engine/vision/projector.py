"""Projectors: from the rows of a tower to those of the language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.base import Array, Ops
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.layers.parts import FeedForward, Linear, Norm
from engine.vision.merging import Merge, joined
from engine.vision.tower import activated


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
