"""Towers over pictures that keep their shape, squares of whose patches are joined to one token by two linear
layers, after a norm of the tower and one of the projector: PaddleOCR-VL's and MoonViT.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, norm
from engine.models.layers.parts import Norm
from engine.tensors import Floats
from engine.vision.encoders.grid_encoder import GridParts
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.projector import ProjectorNames, ProjectorShape, projector
from engine.vision.layers.tower import TowerNames, TowerShape, patch_linear, tower_layers


@dataclass(frozen=True, slots=True)
class JoinedNames:
    """The names of an encoder's tensors, without ".weight" and ".bias"; `positions` is a whole name."""

    tower: TowerNames
    first: str
    positions: str
    after: str
    projector: ProjectorNames


@dataclass(frozen=True, slots=True)
class JoinedShape:
    """`tower` and what else is needed: the side of a `patch` in pixels, that of a token in patches, the width
    of rows, and the shape of the `table` of positions, whose last dimension is the tower's width. `eps` is
    that of the projector's norm.
    """

    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    table: tuple[int, ...]
    eps: float = 1e-5


@dataclass(frozen=True, slots=True)
class _Twice:
    """One norm after the other."""

    first: Norm
    second: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.second(ops, self.first(ops, x))


def joined_parts(
    shape: JoinedShape, names: JoinedNames, place: Callable[[Floats, int, int], Floats], source: WeightSource
) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`; `place` makes of the table (P, E) the positions of this many rows and columns of
    patches.
    """
    tower, width = shape.tower, shape.tower.width
    first = patch_linear(source, names.first, width, shape.patch, None)
    blocks = yield from tower_layers(source, tower, names.tower, tower.layers)
    after = _Twice(
        norm(source, names.after, width, tower.eps, layer_norm=True, bias=None),
        norm(source, names.projector.norm, width, shape.eps, layer_norm=True, bias=None),
    )
    inputs = width * shape.factor**2
    last = projector(source, ProjectorShape(inputs, shape.outputs, inputs), names.projector)
    table = source.vector(names.positions, *shape.table)
    head = Head(together, inputs, last)
    return GridParts((first,), blocks.blocks, head, place=partial(_placed, place, table), after=after)


def _placed(place: Callable[[Floats, int, int], Floats], table: Floats, rows: int, columns: int) -> Floats:
    return place(table.reshape(-1, table.shape[-1]), rows, columns)


def together(cells: Floats) -> Floats:
    """The patches of each token (n, patches, E) as one row."""
    return cells.reshape(len(cells), -1)
