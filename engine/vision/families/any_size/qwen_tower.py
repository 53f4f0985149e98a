"""The tower of Qwen's models that see, and of those that have taken it over (`qwen_vl.py`): its shape, the
names of its tensors, and its parts.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.source import View, WeightSource, linear, norm, vector_if
from engine.models.layers.parts import Block, Linear
from engine.vision.encoders.grid_encoder import GridParts
from engine.vision.encoders.joined import together
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.projector import Projector, ProjectorNames, ProjectorShape, projector
from engine.vision.layers.tower import TowerNames, TowerShape, tower_layers
from engine.vision.pictures.interpolation import corners, resampled

_LAST, _MAKERS_LAST = "model.vision_projector", "model.mm_projector"
"""HyperCLOVA's matrix behind the tower, with its bias; its makers' folder has the second name."""


@dataclass(frozen=True, slots=True)
class QwenNames:
    """The names of an encoder's tensors, without ".weight" and ".bias"; `positions` is a whole name. A `deep`
    one has the number of a merger in place of {}.
    """

    tower: TowerNames
    first: str
    after: str
    merger: ProjectorNames
    positions: str
    deep: ProjectorNames


@dataclass(frozen=True, slots=True)
class QwenShape:
    """`tower` and what else `qwen_parts` reads: `frames` of a patch, 0 if there is a matrix for each of two;
    `table` positions are stored; `deep` are layers, and `numbers` those of their mergers in names. The merger
    makes rows of `merged` numbers, of which one more matrix makes `outputs`; with 0 it makes these itself.
    """

    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    frames: int
    table: int = 0
    deep: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    window: int = 0
    whole: frozenset[int] = frozenset()
    merged: int = 0


@dataclass(frozen=True, slots=True)
class _Followed:
    """last(merger(x))."""

    merger: Projector
    last: Linear

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.last(ops, self.merger(ops, x))


def qwen_parts(shape: QwenShape, names: QwenNames, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    tower, width = shape.tower, shape.tower.width
    first = frame_linears(source, names.first, width, shape.patch, shape.frames)
    blocks = yield from tower_layers(source, tower, names.tower, tower.layers)
    after = norm(
        source, names.after, width, tower.eps, layer_norm=tower.layer_norm,
        bias=None if tower.layer_norm else False,
    )  # fmt: skip
    inputs = width * shape.factor**2
    merger = ProjectorShape(inputs, shape.merged or shape.outputs, inputs, "gelu")
    project = projector(source, merger, names.merger)
    behind = _MAKERS_LAST if source.has(_MAKERS_LAST + ".weight") else _LAST
    last = linear(source, behind, shape.outputs, shape.merged, True) if shape.merged else None
    head = Head(together, inputs, _Followed(project, last) if last else project)
    deep = tuple(
        Head(
            together,
            inputs,
            projector(source, replace(merger, norm="layer", eps=tower.eps), _numbered(names.deep, number)),
        )
        for number in shape.numbers
    )
    place = None
    if shape.table:
        table = source.vector(names.positions, shape.table, width)
        place = partial(resampled, table, weights=corners)
    return GridParts(first, _windowed(blocks.blocks, shape), head, deep, place, None, after)


def frame_linears(source: WeightSource, name: str, width: int, patch: int, frames: int) -> tuple[Linear, ...]:
    """What makes rows of patches of this many frames, or with 0 of one, by the sum of two matrices."""
    area = patch**2
    if frames:
        kernel = (3, frames, patch, patch)
        return (linear(source, name, width, 3 * frames * area, None, View(kernel=kernel)),)
    view = View(kernel=(3, patch, patch))
    first, second = (source.matrix(name + end, width, 3 * area, view) for end in (".weight", ".weight.1"))
    return Linear(first, vector_if(source, name + ".bias", None, width)), Linear(second)


def _numbered(names: ProjectorNames, number: int) -> ProjectorNames:
    first, second, before = (each.format(number) for each in (names.first, names.second, names.norm))
    return ProjectorNames(first, second, before)


def _windowed(blocks: tuple[Block, ...], shape: QwenShape) -> tuple[Block, ...]:
    """The same with windows, except in the layers over the whole picture."""
    if not shape.window:
        return blocks
    found = list[Block]()
    for number, block in enumerate(blocks):
        mixer = block.attention
        if number not in shape.whole and isinstance(mixer, Attention):
            window = (shape.window * shape.factor) ** 2
            mixer = replace(mixer, shape=replace(mixer.shape, window=window, chunked=True))
        found.append(replace(block, attention=mixer))
    return tuple(found)
