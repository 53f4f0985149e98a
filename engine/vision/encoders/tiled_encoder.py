"""The encoder of Llama 3.2 Vision (arXiv 2407.21783, section 7.1): a tower over all patches of up to four
tiles at once, then gated layers; what comes out of it and of some layers within stands side by side.

Rows that fill up the tiles, and those of tiles that a picture lacks, are like others, but do not see each
other. For that, heads get one more dimension: 100 in the queries of such rows and -100 in their keys, which
makes their scores smaller than that any weight is left.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.drain import mapped
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.source import WeightSource, linear, norm
from engine.models.layers.parts import Block, Linear, Norm
from engine.tensors import Bytes, Floats
from engine.vision.base import PictureRows, Piece, Span, VisionSpec
from engine.vision.encoders.patch_encoder import check_patches
from engine.vision.layers.tower import NO_ROPE, TowerNames, TowerShape, patch_linear, tower_layers
from engine.vision.passes import OfPasses, Pass, Pieces
from engine.vision.pictures.images import Normalisation, patches, read_picture, resized
from engine.vision.pictures.tiling import covering_grid

_MORE = 16
"""Further dimensions of a head, of which the first one counts."""
_APART = 100.0
_MULTIPLE = 8
"""The rows of a tile are made a multiple of this."""


@dataclass(frozen=True, slots=True)
class TableNames:
    """The full names of a table and of its gate."""

    table: str
    gate: str


@dataclass(frozen=True, slots=True)
class TiledNames:
    """The names of its tensors: of `first`, `norms` and `projector` without ".weight" and ".bias", else full
    ones; `more_gates` follow those of the layers of `more`. Gates are factors, or where `curved` they are
    numbers whose tanh is the factor, of `positions` one minus this.
    """

    first: str
    class_row: str
    positions: TableNames
    before: TableNames
    places: TableNames
    after: TableNames
    norms: tuple[str, str]
    tower: TowerNames
    more: TowerNames
    more_gates: tuple[str, str]
    projector: str
    curved: bool = True


@dataclass(frozen=True, slots=True)
class Canvas:
    """Grids of at most `most` tiles of `side` pixels square. The picture is at the top left of the grid that
    holds it with the least enlargement, or else with the least reduction; the rest is black.
    """

    side: int
    most: int
    filter: int

    def number(self, width: int, height: int) -> int:
        """The number of a picture's grid, from 1 on: that of all grids (rows, columns) in order."""
        wide, high = self.grid(width, height)
        return 1 + self.grids().index((high, wide))

    def grids(self) -> list[tuple[int, int]]:
        """All grids (rows, columns)."""
        every = range(1, self.most + 1)
        return [(high, wide) for high in every for wide in every if high * wide <= self.most]

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """The columns and rows of a picture's grid."""
        return covering_grid(width, height, self.side, self.most)

    def tiles(self, picture: Bytes) -> Bytes:
        """The tiles (n, side, side, 3) of a picture (H, W, 3), from left to right and from top to bottom."""
        (height, width), side = picture.shape[:2], self.side
        wide, high = self.grid(width, height)
        most_width, most_height = min(max(width, side), wide * side), min(max(height, side), high * side)
        across, down = most_width / width, most_height / height
        if across < down:
            size = most_width, min(int(height * across) or 1, most_height)
        else:
            size = min(int(width * down) or 1, most_width), most_height
        canvas = np.zeros((high * side, wide * side, 3), np.uint8)
        canvas[: size[1], : size[0]] = resized(picture, *size, self.filter)
        return canvas.reshape(high, side, wide, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)


@dataclass(frozen=True, slots=True)
class Table:
    """What is added to rows of a picture, (grids + 1, tiles, ...) by the number of its grid, times `gate`."""

    rows: Floats
    gate: np.float32

    def of(self, grid: int) -> Floats:
        """What is added to the tiles of one grid."""
        return np.asarray(self.rows[grid] * self.gate)


@dataclass(frozen=True, slots=True)
class TiledParts:
    """What `TiledDesign.build` makes. `before` (E,) is added to the patches of a tile, `places` and
    `positions` (P + 1, E) to its class and its patches, and `after` (E,) to all of its rows before the gated
    layers, `more`.
    """

    first: Linear
    class_row: Floats
    positions: Floats
    before: Table
    places: Table
    after: Table
    norms: tuple[Norm, Norm]
    blocks: tuple[Block, ...]
    more: tuple[Block, ...]
    projector: Linear


@dataclass(frozen=True, slots=True)
class TiledDesign:
    """A `Design`; `more` is the number of gated layers, `inner` are after how many of the others states are
    taken, `grids` counts those that the tables have rows for.
    """

    spec: VisionSpec
    tower: TowerShape
    more: int
    inner: tuple[int, ...]
    patch: int
    grids: int
    canvas: Canvas
    pixels: Normalisation
    width: int
    names: TiledNames

    @property
    def layers(self) -> int:
        return self.tower.layers + self.more

    @property
    def rows(self) -> int:
        """Of a tile: its class and its patches."""
        return (self.canvas.side // self.patch) ** 2 + 1

    @property
    def states(self) -> int:
        """The width of what the encoder makes of a row."""
        return self.tower.width * (1 + len(self.inner))

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`: the token that stands for the picture."""
        return (Span(1, 1),)

    def build(self, source: WeightSource) -> Generator[int, None, TiledParts]:
        check_patches(self.rows * self.canvas.most)
        names, width, tiles, shape = self.names, self.tower.width, self.canvas.most, self.tower

        def gate(name: str) -> np.float32:
            found = source.vector(name, 1)[0]
            return np.float32(np.tanh(found) if names.curved else found)

        def table(of: TableNames, *sizes: int) -> Table:
            whole = source.vector(of.table, self.grids + 1, tiles * math.prod(sizes))
            return Table(whole.reshape(self.grids + 1, tiles, *sizes), gate(of.gate))

        share = gate(names.positions.gate)
        positions = source.vector(names.positions.table, self.rows, width)
        positions = positions * (1 - share if names.curved else share)
        blocks = yield from tower_layers(source, shape, names.tower, shape.layers)
        more = yield from mapped(
            tower_layers(source, shape, names.more, self.more), lambda done: shape.layers + done
        )
        norms = [norm(source, name, width, 1e-5, layer_norm=True, bias=None) for name in names.norms]
        gates = [
            tuple((1.0, float(gate(names.more.layer.format(number) + half))) for half in names.more_gates)
            for number in range(self.more)
        ]
        return TiledParts(
            patch_linear(source, names.first, width, self.patch, False),
            source.vector(names.class_row, width), positions, table(names.before, width),
            table(names.places, self.rows, width), table(names.after, width), (norms[0], norms[1]),
            blocks.blocks,
            tuple(
                replace(block, scales=(first, second))
                for block, (first, second) in zip(more.blocks, gates, strict=True)
            ),
            linear(source, names.projector, self.width, self.states, None),
        )  # fmt: skip

    def encoder(self, spec: VisionSpec, parts: TiledParts, backend: Backend) -> TiledEncoder:
        return TiledEncoder(self, spec, parts, backend)


class TiledEncoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights."""

    def __init__(self, design: TiledDesign, spec: VisionSpec, parts: TiledParts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._parts = design, parts
        width, shape = design.tower.width, design.tower.attention
        self._each = -(-design.rows // _MULTIPLE) * _MULTIPLE
        count, more = design.canvas.most * self._each, shape.heads * _MORE
        self._states, self._after = (np.zeros((count, width), np.float32) for _unused in range(2))
        self._queries, self._keys, self._values = (np.zeros((count, more), np.float32) for _unused in "qkv")
        self._inner = [np.zeros((count, width), np.float32) for _unused in design.inner]

        def first(ops: Ops, patches: Array, places: Array) -> Array:
            return parts.norms[0](ops, parts.first(ops, patches, places))

        self._first = Pieces(backend, first, (3 * design.patch**2, width))
        wide = replace(shape, head_dim=shape.head_dim + _MORE)
        self._tower = Pass(backend, self._forward, count, wide)
        self._last = Pieces(backend, parts.projector, (design.states,))
        super().__init__(self._first, self._tower, self._last)

    def _forward(self, ops: Ops) -> Array:
        """All layers, from the given states (T, E) on; those within leave theirs in `_inner`."""
        parts, inner = self._parts, dict(zip(self._design.inner, self._inner, strict=True))
        further = tuple(ops.given(each) for each in (self._queries, self._keys, self._values))
        x = ops.given(self._states)
        for layers, block in enumerate(parts.blocks):
            x = ops.keep(x, inner[layers]) if layers in inner else x
            x = self._layer(ops, block, x, further)
        x = ops.add(parts.norms[1](ops, x), ops.given(self._after))
        for block in parts.more:
            x = self._layer(ops, block, x, further)
        return ops.last_rows(x)

    def _layer(self, ops: Ops, block: Block, x: Array, further: Sequence[Array]) -> Array:
        """One layer, whose heads get the `further` dimensions of queries, keys and values."""
        attention = block.attention
        assert isinstance(attention, Attention)
        assert block.attention_norm is not None
        shape = attention.shape
        wide = replace(shape, head_dim=shape.head_dim + _MORE)
        parts = attention.inputs(ops, block.attention_norm(ops, x))
        q, k, v = (ops.join(part, more, shape.heads) for part, more in zip(parts, further, strict=True))
        y = ops.columns(ops.attention(0, q, k, v, wide), 0, shape.head_dim, shape.heads)
        x = ops.add(x, attention.output(ops, y), block.scales[0][1])
        return replace(block, attention=None)(ops, x, NO_ROPE)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        """As `VisionEncoder.encode`: the rows of the tiles that the picture has."""
        design, picture = self._design, read_picture(data)
        tiles = design.canvas.tiles(picture)
        grid = design.canvas.number(picture.shape[1], picture.shape[0])
        states = yield from self._embedded(tiles, grid)
        count, rows, each = design.canvas.most, design.rows, self._each
        self._states[:] = 0
        self._states.reshape(count, each, -1)[:, :rows] = states
        self._after[:] = np.repeat(self._parts.after.of(grid), each, axis=0)
        apart = np.ones((count, each), np.bool_)
        apart[: len(tiles), :rows] = False
        self._queries[:, ::_MORE] = np.where(apart.reshape(-1, 1), np.float32(_APART), 0)
        self._keys[:, ::_MORE] = -self._queries[:, ::_MORE]
        last = (yield from self._tower.steps(count * each)).copy()
        own, *inner = (state.reshape(count, each, -1)[: len(tiles), :rows] for state in (last, *self._inner))
        beside = np.stack(inner, axis=-1).reshape(*own.shape[:2], -1)
        whole = np.concatenate([own, beside], axis=-1).reshape(-1, design.states)
        return (PictureRows((yield from self._last.rows(whole))),)

    def _embedded(self, tiles: Bytes, grid: int) -> Generator[Waiting, None, Floats]:
        """The normed rows (tiles, P + 1, E) of the class and the patches; those of tiles that the picture
        lacks are made of zeros.
        """
        design, parts = self._design, self._parts
        count, rows, width = design.canvas.most, design.rows, design.tower.width
        pixels = np.zeros((count, rows, 3 * design.patch**2), np.float32)
        for tile, into in zip(tiles, pixels, strict=False):
            into[1:] = patches(tile, design.patch, design.pixels)
        places = parts.places.of(grid) + parts.positions
        places[:, 0] += parts.class_row
        places[:, 1:] += parts.before.of(grid)[:, None]
        found = yield from self._first.rows(pixels.reshape(count * rows, -1), places.reshape(-1, width))
        return found.reshape(count, rows, width)
