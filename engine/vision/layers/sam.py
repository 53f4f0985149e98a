"""The image encoder of Segment Anything (arXiv 2304.02643, section 3) over square pictures: a vision
transformer most of whose layers have windows (ViTDet, arXiv 2203.16527), with scores that depend on how many
rows and columns are between two patches (MViTv2, arXiv 2112.01526, section 4.1), and convolutions that make
fewer rows of its patches.

To the score of patches i and j, q_i . down[row_i - row_j] + q_i . across[column_i - column_j] is added. That
is a product of longer queries and keys: to a query its products with all places of a line are appended, to a
key which places are its own. Windows beyond the edge are filled with zeros, which become the bias.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import chain

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.layers.parts import Linear, Norm, PlainMlp
from engine.tensors import Bytes, Floats
from engine.vision.layers.convolution import around, convolution
from engine.vision.layers.grid_passes import first_rows
from engine.vision.layers.tower import patch_linear
from engine.vision.passes import PIECE, OfPasses, Pass, Pieces
from engine.vision.pictures.images import Normalisation, patches
from engine.vision.pictures.interpolation import linear as line
from engine.vision.pictures.interpolation import resampled, smooth_cubic

EPS = 1e-6
"""Of the norms after the layers."""


@dataclass(frozen=True, slots=True)
class SamShape:
    """E, the layers, H and F of the transformer; `side` is that of its pictures in pixels at most, `patch`
    that of a patch. Layers have windows of `window` patches a side, but for those with indices in `whole`.
    `channels` are the rows' widths after the neck, and after each convolution that halves the grid.
    """

    width: int
    layers: int
    heads: int
    mlp_width: int
    side: int
    patch: int
    window: int
    whole: frozenset[int]
    channels: tuple[int, ...]
    eps: float = EPS
    activation: str = "gelu"

    @property
    def cells(self) -> int:
        """Patches of a side at most."""
        return self.side // self.patch

    def rows(self, side: int) -> int:
        """How many rows a side of this many pixels becomes."""
        found = side // self.patch
        for _unused in self.channels[1:]:
            found = (found + 1) // 2
        return found


@dataclass(frozen=True, slots=True)
class SamNames:
    """The names of its tensors, without ".weight" and ".bias"; those of a layer follow `layer`, in which {}
    is its number. `positions` and `relative` are whole names. `neck` are two convolutions, each before its
    norm, `halves` those that halve the grid.
    """

    first: str
    positions: str
    layer: str
    parts: tuple[str, str, str, str, str, str]
    relative: tuple[str, str]
    neck: tuple[str, str, str, str]
    halves: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """`down` and `across` are (2 S - 1, D); `filling` is (3 E,): queries, keys and values beyond an edge."""

    before: Norm
    inputs: Linear
    output: Linear
    before_mlp: Norm
    mlp: PlainMlp
    down: Floats
    across: Floats
    window: int

    @property
    def filling(self) -> Floats:
        bias = self.inputs.bias
        return np.zeros(self.inputs.weight.shape[0], np.float32) if bias is None else bias

    def queries_keys_values(self, ops: Ops, x: Array) -> Array:
        """(T, E) -> (T, 3 E)."""
        return self.inputs(ops, self.before(ops, x))

    def rest(self, ops: Ops, x: Array, attended: Array) -> Array:
        """The states (T, E) after the layer, of those before it and what attention gave."""
        x = self.output(ops, attended, x)
        return self.mlp(ops, self.before_mlp(ops, x), x)


@dataclass(frozen=True, slots=True, eq=False)
class SamParts:
    """What `build` makes: `positions` are (S * S, E), `neck` two convolutions and their norms."""

    first: Linear
    positions: Floats
    layers: tuple[_Layer, ...]
    neck: tuple[tuple[Linear, Norm], tuple[Linear, Norm]]
    halves: tuple[Linear, ...]


def build(shape: SamShape, names: SamNames, source: WeightSource) -> Generator[int, None, SamParts]:
    """Its parts; yields the number of finished layers after each. Raises `BadCheckpoint`."""
    width, cells = shape.width, shape.cells
    first = patch_linear(source, names.first, width, shape.patch, True)
    positions = source.vector(names.positions, 1, cells, cells, width).reshape(cells * cells, width)
    layers = list[_Layer]()
    for number in range(shape.layers):
        layers.append(_layer(shape, names, source, number))
        yield number + 1
    start, channels = names.neck, shape.channels
    found = tuple(
        (
            convolution(source, start[at], channels[0], inputs, size),
            norm(source, start[at + 1], channels[0], EPS, layer_norm=True, bias=True),
        )
        for at, inputs, size in ((0, width, 1), (2, channels[0], 3))
    )
    halves = tuple(
        convolution(source, name, outputs, inputs, 3)
        for name, inputs, outputs in zip(names.halves, channels[:-1], channels[1:], strict=True)
    )
    return SamParts(first, positions, tuple(layers), (found[0], found[1]), halves)


def _layer(shape: SamShape, names: SamNames, source: WeightSource, number: int) -> _Layer:
    width, at = shape.width, names.layer.format(number)
    before, inputs, output, before_mlp, first, second = (at + part for part in names.parts)
    norms = [
        norm(source, name, width, shape.eps, layer_norm=True, bias=True) for name in (before, before_mlp)
    ]
    window = 0 if number in shape.whole else shape.window
    distances = 2 * (window or shape.cells) - 1
    down, across = (source.vector(at + name, distances, width // shape.heads) for name in names.relative)
    return _Layer(
        norms[0], linear(source, inputs, 3 * width, width, None), linear(source, output, width, width, True),
        norms[1],
        PlainMlp(
            linear(source, first, shape.mlp_width, width, True),
            linear(source, second, width, shape.mlp_width, True), shape.activation,
        ),
        down, across, window,
    )  # fmt: skip


class SamEncoder(OfPasses):
    """Runs it, for square pictures of the shape's side or smaller ones. Used by one thread."""

    def __init__(self, shape: SamShape, parts: SamParts, pixels: Normalisation, backend: Backend) -> None:
        self._shape, self._parts, self._pixels = shape, parts, pixels
        width = shape.width
        self._first = first_rows(backend, (parts.first,), 3 * shape.patch**2, width, True, None)
        self._layers = [
            (
                Pieces(backend, layer.queries_keys_values, (width,)),
                Pieces(backend, layer.rest, (width, width)),
            )
            for layer in parts.layers
        ]
        sides = sorted({layer.window for layer in parts.layers})
        self._attention = {side: _Attention(shape, side, backend) for side in sides}
        (flat, flat_norm), (wide, wide_norm) = parts.neck
        self._neck = (
            Pieces(backend, partial(_normed, flat, flat_norm), (width,)),
            Pieces(backend, partial(_normed, wide, wide_norm), (9 * shape.channels[0],)),
        )
        self._halves = [
            Pieces(backend, half, (9 * inputs,))
            for half, inputs in zip(parts.halves, shape.channels, strict=False)
        ]
        super().__init__(
            self._first,
            *chain.from_iterable(self._layers),
            *(each.run for each in self._attention.values()),
            *self._neck,
            *self._halves,
        )

    def states(self, crop: Bytes | Floats) -> Generator[Waiting, None, Floats]:
        """The rows of a square picture (side, side, 3) as a grid (R, R, C); yields between short steps."""
        shape, parts = self._shape, self._parts
        cells = crop.shape[0] // shape.patch
        assert crop.shape[0] == crop.shape[1]
        places = resampled(parts.positions, cells, cells, smooth_cubic)
        x = yield from self._first.rows(patches(crop, shape.patch, self._pixels), places)
        for layer, (inputs, rest) in zip(parts.layers, self._layers, strict=True):
            made = (yield from inputs.rows(x)).reshape(cells, cells, -1)
            attended = yield from self._attention[layer.window].rows(layer, made)
            x = yield from rest.rows(x, attended)
        flat, wide = self._neck
        grid = (yield from flat.rows(x)).reshape(cells, cells, -1)
        grid = yield from _convolved(wide, grid, 1)
        for half in self._halves:
            grid = yield from _convolved(half, grid, 2)
        return grid


def _normed(first: Linear, after: Norm, ops: Ops, x: Array) -> Array:
    return after(ops, first(ops, x))


def _convolved(run: Pieces, grid: Floats, step: int) -> Generator[Waiting, None, Floats]:
    """What a convolution of 3 * 3 places makes of a grid with an edge of zeros."""
    squares = around(grid, 3, step, 1)
    found = yield from run.rows(squares.reshape(-1, squares.shape[-1]))
    return found.reshape(*squares.shape[:2], -1)


class _Attention(OfPasses):
    """Attention among the patches of a window of `side` patches a side, or with 0 among all of them."""

    def __init__(self, shape: SamShape, side: int, backend: Backend) -> None:
        self._heads, self._side = shape.heads, side
        self._dim, longest = shape.width // shape.heads, side or shape.cells
        self._wide = -(-(self._dim + 2 * longest) // 8) * 8  # whole vectors of a processor
        area = longest**2
        most = max(1, PIECE // area) * area
        self._given = [np.zeros((most, shape.heads * self._wide), np.float32) for _unused in range(3)]
        own = AttentionShape(
            shape.heads, shape.heads, self._wide, 1.0, window=area if side else 0, chunked=bool(side),
            bidirectional=True,
        )  # fmt: skip

        def forward(ops: Ops) -> Array:
            q, k, v = (ops.given(each) for each in self._given)
            return ops.last_rows(ops.attention(0, q, k, v, own))

        self.run = Pass(backend, forward, most, own)
        super().__init__(self.run)

    def rows(self, layer: _Layer, made: Floats) -> Generator[Waiting, None, Floats]:
        """What attention gives (R * R, E) of a grid's queries, keys and values (R, R, 3 E)."""
        cells, dim, side = len(made), self._dim, self._side or len(made)
        across = -(-cells // side)
        whole = np.empty((across * side, across * side, made.shape[2]), np.float32)
        whole[:] = layer.filling
        whole[:cells, :cells] = made
        windows = whole.reshape(across, side, across, side, -1).swapaxes(1, 2)
        windows = windows.reshape(across**2, side, side, 3, self._heads, dim)
        found = np.empty((across**2, side * side, self._heads, dim), np.float32)
        step = max(1, self.run.max_rows // side**2)
        for start in range(0, across**2, step):
            part = windows[start : start + step]
            count = len(part) * side * side
            for into, values in zip(self._given, self._longer(layer, part), strict=True):
                into[:count] = values.reshape(count, -1)
            yield Waiting()
            states = yield from self.run.steps(count)
            found[start : start + step] = states.reshape(len(part), -1, self._heads, self._wide)[..., :dim]
        grid = found.reshape(across, across, side, side, -1).swapaxes(1, 2)
        return np.ascontiguousarray(grid.reshape(*whole.shape[:2], -1)[:cells, :cells]).reshape(cells**2, -1)

    def _longer(self, layer: _Layer, windows: Floats) -> tuple[Floats, Floats, Floats]:
        """Queries, keys and values (N, S, S, H, W) of windows (N, S, S, 3, H, D)."""
        side, dim = windows.shape[1], self._dim
        query, key, value = (windows[:, :, :, number] for number in range(3))
        down, across = (_by_places(table, side) for table in (layer.down, layer.across))
        shape = (*query.shape[:-1], self._wide)
        queries, keys, values = (np.zeros(shape, np.float32) for _unused in range(3))
        rows, columns = slice(dim, dim + side), slice(dim + side, dim + 2 * side)
        queries[..., :dim] = query * np.float32(dim**-0.5)
        queries[..., rows] = np.einsum("nrchd,rkd->nrchk", query, down, optimize=True)
        queries[..., columns] = np.einsum("nrchd,ckd->nrchk", query, across, optimize=True)
        own = np.eye(side, dtype=np.float32)
        keys[..., :dim], values[..., :dim] = key, value
        keys[..., rows] = own[None, :, None, None]
        keys[..., columns] = own[None, None, :, None]
        return queries, keys, values


def _by_places(table: Floats, side: int) -> Floats:
    """(S, S, D): what a table (distances, D), stretched if needed, has for each two places of a line."""
    count = 2 * side - 1
    table = table if len(table) == count else line(count, len(table)) @ table
    places = np.arange(side)
    return np.ascontiguousarray(table[places[:, None] - places[None] + side - 1])
