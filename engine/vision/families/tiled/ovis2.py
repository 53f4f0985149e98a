"""Ovis2 (arXiv 2405.20797): AIMv2 (arXiv 2411.14402) over square tiles; each token is a mean of the rows of a
table, weighted by how likely each of these visual words is. Marks between tiles are rows of this table, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Linear, Norm
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_WIDTH,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.merging import joined
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.tower import TowerNames
from engine.vision.passes import OfPasses, Pass
from engine.vision.pictures.images import resized
from engine.vision.pictures.tiling import best_grid, grids, tiles_of
from engine.words import _

SPEC = VisionSpec("ovis2", "<image>", "<IMG_ATOM>")
_TOWER = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24, "num_attention_heads": 8,
    "image_size": 224, "patch_size": 14,
}  # fmt: skip
_PREFIXES = ("model.", "")
_CHOICES = ("softmax", "st_argmax")
_MARKS = 5
"""Rows of the table at its end: before a picture, after the whole of it, between tiles, after a line of
these, and after a picture.
"""
_COVERED = 0.9
_MOST_TILES = 1 << 8


@dataclass(frozen=True, slots=True)
class Tiles:
    """At most `most` tiles of `side` pixels square; if there are several, the whole picture is the first. If
    `covering`, they are the fewest that cover nine tenths of the picture, else `least` at least, as in
    InternVL.
    """

    side: int
    patch: int
    tokens: int
    filter: int
    least: int = 1
    most: int = 12
    covering: bool = True

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span with all tokens and marks."""
        wide, high = self._grid(width, height)
        tiles = wide * high
        between = tiles - 1 if tiles > 1 else 0
        return (Span(1, self.tokens * (tiles + (1 if tiles > 1 else 0)) + between + 3),)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        wide, high = self._grid(width, height)
        whole = resized(picture, self.side, self.side, self.filter)
        if wide * high == 1:
            return (whole,)
        return (whole, *tiles_of(picture, wide, high, self.side, self.filter))

    def spans(
        self, crops: Sequence[Floats], width: int, height: int, line_end: Floats | None
    ) -> Sequence[Floats]:
        """As `Assemble`, of crops whose tokens are followed by the marks."""
        before, after_whole, column, row, after = crops[0][-_MARKS:, None]
        found, wide = [before, crops[0][:-_MARKS], after_whole], self._grid(width, height)[0]
        for number, tile in enumerate(crops[1:]):
            if number:
                found.append(column if number % wide else row)
            found.append(tile[:-_MARKS])
        return (np.concatenate([*found, after]),)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another."""
        if self.most == 1:
            return 1, 1
        if self.covering:
            return covering(width, height, self.side, self.most)
        return best_grid(width, height, self.side, self.least, self.most)


@lru_cache(1 << 8)
def covering(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """The smallest grid (columns, rows) of which tiles of `side` pixels cover more than nine tenths of the
    picture (Ovis2's image processor, in `transformers`, which takes the rows that it finds for columns).
    """
    found = [(grid, _covered(width, height, grid, side)) for grid in grids(1, most)]
    enough = [each for each in found if each[1] > _COVERED]
    if enough:
        return min(enough, key=lambda each: (each[0][0] * each[0][1], -each[1]))[0]
    return min(found, key=lambda each: (-each[1], each[0][0] * each[0][1]))[0]


def _covered(width: int, height: int, grid: tuple[int, int], side: int) -> float:
    """The share of the picture, cut into this many rows and columns, that is left if no part may be longer
    than `side`.
    """
    rows, columns = grid
    high, wide = height // rows, width // columns
    total = 0.0
    for row in range(rows):
        for column in range(columns):
            own = height - row * high if row == rows - 1 else high
            across = width - column * wide if column == columns - 1 else wide
            long, short = max(own, across), min(own, across)
            total += short * long if long <= side else short / long * side * side
    return total / (width * height)


@dataclass(frozen=True, slots=True)
class _Words:
    """The weights of `_WordsPass`: patches (T, K) -> (T, V - 5), and (T, V) -> (T, N)."""

    first: Linear
    before: Norm
    table: Linear


@dataclass(frozen=True, slots=True)
class WordsShape:
    """A `TokensShape`: squares of `factor` patches of `width` numbers -> how likely each of `words` is, of
    which the last are marks -> rows of `outputs` numbers. If `hard`, only the likeliest counts.
    """

    width: int
    outputs: int
    words: int
    factor: int
    hard: bool
    at: str
    table: str

    def build(self, source: WeightSource, names: ProjectorNames) -> _Words:
        """As `TokensShape.build`; the names are its own."""
        count = self.words - _MARKS
        first = linear(source, self.at + "head_linear", count, self.width * self.factor**2, False)
        before = norm(source, self.at + "head_norm", count, 1e-5, layer_norm=True, bias=True)
        table = source.matrix(self.table, self.outputs, self.words, View(transposed=True))
        return _Words(first, before, Linear(table))

    def tokens(self, backend: Backend, parts: _Words, most: int) -> _WordsPass:
        return _WordsPass(backend, self, parts, most)


class _WordsPass(OfPasses):
    """`Tokens` of visual words, which are followed by the rows of all marks."""

    def __init__(self, backend: Backend, shape: WordsShape, parts: _Words, most: int) -> None:
        self._shape = shape
        tokens = most // shape.factor**2
        self._joined = np.zeros((tokens, shape.width * shape.factor**2), np.float32)
        self._likely = np.zeros((tokens + _MARKS, shape.words), np.float32)
        self._likely[tokens:, -_MARKS:] = np.eye(_MARKS)

        def words(ops: Ops) -> Array:
            return ops.last_rows(parts.before(ops, parts.first(ops, ops.given(self._joined))))

        def rows(ops: Ops) -> Array:
            return ops.last_rows(parts.table(ops, ops.given(self._likely)))

        self._first = Pass(backend, words, len(self._joined))
        self._second = Pass(backend, rows, len(self._likely))
        super().__init__(self._first, self._second)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        self._joined[:] = joined(states, rows, columns, self._shape.factor)
        scores = yield from self._first.steps(len(self._joined))
        likely = self._likely[: len(scores), :-_MARKS]
        if self._shape.hard:
            likely[:] = 0
            likely[np.arange(len(scores)), scores.argmax(axis=1)] = 1
        else:
            np.exp(scores - scores.max(axis=1, keepdims=True), out=likely)
            likely /= likely.sum(axis=1, keepdims=True)
        found = yield from self._second.steps(len(self._likely))
        return found.copy()


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Ovis2ForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    vision = vision.replaced("layer_norm_eps", vision.raw("rms_norm_eps"))
    shape = replace(tower_from_hf(vision, "silu", 1e-5), gated=True, layer_norm=False)
    prefix = prefix_of(tensors, "visual_embeddings_table.weight", _PREFIXES)
    tower = prefix + "vision_tower.transformer."
    layers = TowerNames(
        "encoder.layers.{}.", "rms_norm1", "attention.q_proj", "attention.k_proj", "attention.v_proj",
        "attention.out_proj", "rms_norm2", "ffn.up_proj", "ffn.down_proj", "ffn.gate_proj",
    ).under(tower)  # fmt: skip
    names = PatchNames(
        layers, tower + "embeddings.patch_embedding", tower + "embeddings.position_embedding.weight",
        ProjectorNames(), tower + "rms_norm", tower + "embeddings.rms_norm",
    )  # fmt: skip
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    factor = vision.integer("hidden_stride", 1, 64, 1)
    cells = whole_patches(side, patch, factor)
    words = WordsShape(
        shape.width, config.integer("hidden_size", 1, MOST_WIDTH, 1536),
        vision.integer("vocab_size", _MARKS + 1, 1 << 24, 16384), factor, _choice(vision) == "st_argmax",
        prefix + "vision_tower.", prefix + "visual_embeddings_table.weight",
    )  # fmt: skip
    most = processor.integer("max_patches", 1, _MOST_TILES, 12)
    most = most if processor.flag("crop_to_patches", False) else 1
    tiles = Tiles(
        side, patch, (cells // factor) ** 2, resampling(processor),
        min(most, processor.integer("min_patches", 1, _MOST_TILES, 1)), most,
        processor.flag("use_covering_area_grid", True),
    )  # fmt: skip
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return PatchDesign(
        SPEC, shape, names, patch, cells**2, pixels, tiles, words, (shape.layers,), assemble=tiles.spans,
        placed_last=True,
    )  # fmt: skip


def _choice(vision: Keys) -> str:
    """How words are chosen. Raises `UnsupportedModel`."""
    found = vision.text("tokenize_function", _CHOICES[0])
    if found not in _CHOICES:
        raise UnsupportedModel(
            _(
                "The vision encoder has the activation {found!r}; only {known} are supported. Choose another "
                "model.",
                found=found,
                known=", ".join(_CHOICES),
            )
        )
    return found


OVIS2 = Family("ovis2", ("Ovis2ForConditionalGeneration",), (), from_hf, None)
