"""What follows the first layers of MiniCPM-V 4.6's tower (the code of `transformers`): the patches of each
square of four attend to each other and become one row, the other layers run over these rows, and squares of
four are merged again, to one token.

With x the rows of a square: y = x + attention(norm(x)); mean(y) + down(gelu(up(norm(join(y))))).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.drain import drain
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.layers.parts import FeedForward, Linear, Norm
from engine.models.layers.whole import Blocks
from engine.tensors import Floats
from engine.vision.layers.host_attention import attend
from engine.vision.layers.merging import joined
from engine.vision.layers.projector import Projector, ProjectorNames, ProjectorPass, ProjectorShape
from engine.vision.layers.tower import NO_ROPE, TowerNames, TowerShape, activated, tower_layers
from engine.vision.passes import OfPasses, Pass

FACTOR = 2
"""Patches of a square's side, both times."""
_CELL = FACTOR**2


@dataclass(frozen=True, slots=True)
class MergerNames:
    """The names of its tensors, without ".weight" and ".bias": `inputs` make queries, keys and
    values; `before` and `joined` are norms, `last` is that after all layers.
    """

    layers: TowerNames
    before: str
    inputs: tuple[str, ...]
    output: str
    joined: str
    up: str
    down: str
    last: str


@dataclass(frozen=True, slots=True)
class WindowMerger:
    """Its weights."""

    before: Norm
    inputs: tuple[Linear, ...]
    output: Linear
    joined: Norm
    mlp: FeedForward
    blocks: Blocks
    last: Norm
    projector: Projector


@dataclass(frozen=True, slots=True)
class WindowMergerShape:
    """A `TokensShape`: the rows (T, E) that the first layers of `tower` make -> (T / 16, `outputs`). Its
    layers `first` to the last follow; `hidden` is the width between the linear layers of a square.
    """

    tower: TowerShape
    first: int
    hidden: int
    outputs: int
    names: MergerNames

    @property
    def projector(self) -> ProjectorShape:
        """The second merge."""
        width = _CELL * self.tower.width
        return ProjectorShape(width, self.outputs, width, norm="layer", eps=1e-6, factor=FACTOR)

    def build(self, source: WeightSource, names: ProjectorNames) -> WindowMerger:
        """As `TokensShape.build`; the names are those of the second merge."""
        own, shape = self.names, self.tower
        width = shape.width
        layer_norm = partial(norm, source, eps=shape.eps, layer_norm=True, bias=True)
        before, together, last = (
            layer_norm(name, size)
            for name, size in ((own.before, width), (own.joined, _CELL * width), (own.last, width))
        )
        up = linear(source, own.up, self.hidden, _CELL * width, True)
        down = linear(source, own.down, width, self.hidden, True)
        return WindowMerger(
            before, tuple(linear(source, name, width, width, True) for name in own.inputs),
            linear(source, own.output, width, width, True), together, activated(up, down, "gelu_tanh"),
            drain(tower_layers(source, shape, own.layers, shape.layers, self.first)), last,
            self.projector.build(source, names),
        )  # fmt: skip

    def tokens(self, backend: Backend, parts: WindowMerger, most: int) -> WindowMergerPass:
        return WindowMergerPass(backend, self, parts, most)


class WindowMergerPass(OfPasses):
    """`Tokens` of merged squares. Attention among four rows is done on the host."""

    def __init__(self, backend: Backend, shape: WindowMergerShape, parts: WindowMerger, most: int) -> None:
        self._shape, width = shape.tower.attention, shape.tower.width
        self._rows, self._attended = (np.zeros((most, width), np.float32) for _ in range(2))
        self._joined = np.zeros((most // _CELL, _CELL * width), np.float32)
        self._means = np.zeros((most // _CELL, width), np.float32)

        def inputs(ops: Ops) -> Array:
            x = parts.before(ops, ops.given(self._rows))
            query, key, value = (each(ops, x) for each in parts.inputs)
            return ops.last_rows(ops.join(ops.join(query, key, 1), value, 1))

        def outputs(ops: Ops) -> Array:
            return ops.last_rows(parts.output(ops, ops.given(self._attended), ops.given(self._rows)))

        def rest(ops: Ops) -> Array:
            x = parts.mlp(ops, parts.joined(ops, ops.given(self._joined)), ops.given(self._means))
            return ops.last_rows(parts.last(ops, parts.blocks(ops, x, NO_ROPE)))

        self._inputs, self._outputs = Pass(backend, inputs, most), Pass(backend, outputs, most)
        self._rest = Pass(backend, rest, most // _CELL, self._shape)
        self._last = ProjectorPass(backend, shape.projector, parts.projector, most // _CELL)
        super().__init__(self._inputs, self._outputs, self._rest, self._last)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        count = rows * columns
        squares = joined(states, rows, columns, FACTOR)
        self._rows[:count] = squares.reshape(count, -1)
        made = yield from self._inputs.steps(count)
        self._attended[:count] = self._attention(made)
        yield Waiting()
        merged = (yield from self._outputs.steps(count)).reshape(count // _CELL, -1)
        self._joined[: len(merged)] = merged
        self._means[: len(merged)] = merged.reshape(len(merged), _CELL, -1).mean(axis=1)
        found = (yield from self._rest.steps(len(merged))).copy()
        return (yield from self._last.rows(found, rows // FACTOR, columns // FACTOR))

    def _attention(self, made: Floats) -> Floats:
        """softmax(Q K^T / sqrt(D)) V of each square and head, of queries, keys and values (T, 3 E) side by
        side, all rows of a square one after the other: (T, E).
        """
        shape = self._shape
        parts = made.reshape(-1, _CELL, 3, shape.heads, shape.head_dim).transpose(2, 0, 3, 1, 4)
        query, key, value = parts
        mean = attend(query, key, value, shape.scale)
        found: Floats = mean.transpose(0, 2, 1, 3).reshape(len(made), -1)
        return found
