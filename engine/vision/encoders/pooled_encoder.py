"""Molmo's encoder (arXiv 2409.17146, section 2): a tower over crops that overlap, whose patches are joined to
one grid; of each square of this, the mean attends to the patches, and a gated layer makes a token of it.

softmax(Q K^T / sqrt(D)) V of each head with Q = query(mean), K = key(patch), V = value(patch).
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.layers.parts import GatedMlp, Linear
from engine.tensors import Floats, RawTensor
from engine.vision.base import PictureRows, Piece, Span, VisionSpec
from engine.vision.encoders.patch_encoder import check_patches
from engine.vision.layers.embedded import embeddings
from engine.vision.layers.host_attention import attend
from engine.vision.layers.tower import NO_ROPE, Tower, TowerNames, TowerShape, patch_linear, tower_layers
from engine.vision.passes import OfPasses, Pass, Pieces
from engine.vision.pictures.images import Normalisation, patches, read_picture
from engine.vision.pictures.overlapping import Overlapping


@dataclass(frozen=True, slots=True)
class PooledNames:
    """The names of its tensors, without ".weight" and ".bias"; `positions` and `table` are whole names. `mlp`
    are the gate, what it multiplies, and the last matrix.
    """

    tower: TowerNames
    first: str
    positions: str
    inputs: tuple[str, ...]
    output: str
    mlp: tuple[str, ...]
    table: str


@dataclass(frozen=True, slots=True)
class Marks:
    """The ids of tokens: the beginnings of the whole picture and of the crops, a picture's token, the end of
    a line and of each part.
    """

    whole: int
    start: int
    token: int
    line: int
    end: int


@dataclass(frozen=True, slots=True)
class PooledParts:
    """What `PooledDesign.build` makes. `marks` are the embeddings of `Marks`, (5, N)."""

    tower: Tower
    positions: Floats
    inputs: tuple[Linear, ...]
    output: Linear
    mlp: GatedMlp
    marks: Floats


@dataclass(frozen=True, slots=True)
class PooledDesign:
    """A `Design`. `pooling` is the attention of a square, over states of `pooled` numbers; `hidden` is the
    width of the gated layer. `table` is the language model's embedding, if the files have it.
    """

    spec: VisionSpec
    tower: TowerShape
    names: PooledNames
    pixels: Normalisation
    cutter: Overlapping
    features: tuple[int, ...]
    pooling: AttentionShape
    pooled: int
    hidden: int
    width: int
    marks: Marks
    table: RawTensor | None

    @property
    def layers(self) -> int:
        return max(self.features)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`: one span, in which marks are rows as well, since they attend to the
        picture's tokens in both directions, too.
        """
        return (Span(1, len(self.order(width, height))),)

    def order(self, width: int, height: int) -> list[int]:
        """Of each row the number of its mark in `Marks`: the whole picture, then its crops."""
        cutter, found = self.cutter, list[int]()
        whole = cutter.pooled(cutter.patches, cutter.patches)
        columns, rows = cutter.cells(width, height)
        for start, (high, wide) in ((0, whole), (1, cutter.pooled(rows, columns))):
            found += [start, *([2] * wide + [3]) * high, 4]
        return found

    def build(self, source: WeightSource) -> Generator[int, None, PooledParts]:
        check_patches(self.cutter.patches**2)
        names, shape, pooling = self.names, self.tower, self.pooling
        first = patch_linear(source, names.first, shape.width, self.cutter.patch, True, flat=True)
        table = source.vector(names.positions, self.cutter.patches**2, shape.width)
        blocks = yield from tower_layers(source, shape, names.tower, self.layers)
        heads, others = (count * pooling.head_dim for count in (pooling.heads, pooling.kv_heads))
        states = len(self.features) * shape.width
        inputs = tuple(
            linear(source, name, rows, states, None)
            for name, rows in zip(names.inputs, (heads, others, others), strict=True)
        )
        gate, up = (linear(source, name, self.hidden, self.pooled, False) for name in names.mlp[:2])
        down = linear(source, names.mlp[2], self.width, self.hidden, False)
        return PooledParts(
            Tower(first, blocks, features=self.features), table, inputs,
            linear(source, names.output, self.pooled, heads, None), GatedMlp(gate, up, down, self.hidden),
            self._marks(source),
        )  # fmt: skip

    def _marks(self, source: WeightSource) -> Floats:
        """The embeddings of the marks."""
        ids = [self.marks.whole, self.marks.start, self.marks.token, self.marks.line, self.marks.end]
        return embeddings(source, self.table, self.names.table, ids, self.width)

    def encoder(self, spec: VisionSpec, parts: PooledParts, backend: Backend) -> PooledEncoder:
        return PooledEncoder(self, spec, parts, backend)


class PooledEncoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights. Attention among the patches of a square is done on
    the host.
    """

    def __init__(self, design: PooledDesign, spec: VisionSpec, parts: PooledParts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._parts = design, parts
        count, patch = design.cutter.patches**2, design.cutter.patch
        self._patches = np.zeros((count, 3 * patch**2), np.float32)
        query, key, value = parts.inputs
        states, pooling = len(design.features) * design.tower.width, design.pooling

        def tower(ops: Ops) -> Array:
            x = parts.tower(ops, ops.given(self._patches), ops.given(parts.positions), NO_ROPE)
            return ops.last_rows(x)

        def keys_and_values(ops: Ops, x: Array) -> Array:
            return ops.join(key(ops, x), value(ops, x), 1)

        def last(ops: Ops, x: Array) -> Array:
            return parts.mlp(ops, parts.output(ops, x))

        self._tower = Pass(backend, tower, count, design.tower.attention)
        self._queries = Pieces(backend, query, (states,))
        self._others = Pieces(backend, keys_and_values, (states,))
        self._last = Pieces(backend, last, (pooling.heads * pooling.head_dim,))
        super().__init__(self._tower, self._queries, self._others, self._last)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        """As `VisionEncoder.encode`: features are added to the embedding of a picture's token."""
        picture, cutter, found = read_picture(data), self._design.cutter, list[Floats]()
        height, width = picture.shape[:2]
        for crop in cutter.crops(picture):
            self._patches[:] = patches(crop, cutter.patch, self._design.pixels, colours_last=True)
            found.append((yield from self._tower.steps(len(self._patches))).copy())
        whole = found[0].reshape(cutter.patches, cutter.patches, -1)
        tokens = list[Floats]()
        for grid in (whole, cutter.joined(found[1:], width, height)):
            tokens.append((yield from self._pooled(*cutter.squares(grid))))
        order = np.array(self._design.order(width, height))
        rows = self._parts.marks[order]
        rows[order == 2] += np.concatenate(tokens)
        return (PictureRows(rows),)

    def _pooled(self, squares: Floats, there: Floats) -> Generator[Waiting, None, Floats]:
        """The tokens (n, N) of squares (n, k, E), of whose patches some are `there`, (n, k)."""
        count, size, width = squares.shape
        shape = self._design.pooling
        means = squares.sum(axis=1) / there.sum(axis=1, keepdims=True)
        query = yield from self._queries.rows(means)
        others = yield from self._others.rows(squares.reshape(count * size, width))
        keys, values = (_heads(each, count, size, shape) for each in np.split(others, 2, axis=1))
        query = query.reshape(count, shape.heads, 1, shape.head_dim)
        mean = attend(query, keys, values, shape.scale, there[:, None, None, :] > 0)
        return (yield from self._last.rows(mean.reshape(count, -1)))


def _heads(states: Floats, count: int, size: int, shape: AttentionShape) -> Floats:
    """(n * k, G * D) -> (n, H, k, D)."""
    found = states.reshape(count, size, shape.kv_heads, shape.head_dim).transpose(0, 2, 1, 3)
    return np.repeat(found, shape.heads // shape.kv_heads, axis=1)
