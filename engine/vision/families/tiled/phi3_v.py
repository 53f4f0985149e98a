"""Phi-3-vision and Phi-3.5-vision (arXiv 2404.14219, section 6): a CLIP tower over square tiles of a picture,
and over the whole of it. Squares of four patches become one token; each line of tokens has a row for its end,
and another row parts the tiles from the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.base import Backend
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.models.headers.keys import Keys
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_WIDTH,
    feature_layers,
    folder_patches,
    inner,
    layer_count,
    normalisation,
    rows_of,
    square_number,
    whole_patches,
)
from engine.vision.layers.merging import joined
from engine.vision.layers.projector import Projector, ProjectorNames, ProjectorPass, ProjectorShape
from engine.vision.layers.tower import QUICK, SIGLIP, TowerNames, TowerShape
from engine.vision.pictures.images import BILINEAR, resized
from engine.vision.pictures.interpolation import cubic, resized_grid

SPEC = VisionSpec("phi3_v", "<|image_1|>", "<|image|>")
_EPS = 1e-5
_HEAD = 64
"""The size of CLIP's heads, of which config.json does not say how many there are."""
_FACTOR, _MARKS = 2, 2
_TILES, _MOST_TILES = 16, 1 << 8
_EMBED = "model.vision_embed_tokens."


@dataclass(frozen=True, slots=True)
class HdTiles:
    """At most `most` tiles of `side` pixels square, of the picture with the longer side as long as this many
    tiles at most, and white bars above and below it, or at its sides; then the whole with these, whose rows
    may come first.
    """

    side: int
    patch: int
    most: int
    whole_first: bool

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    @property
    def _cells(self) -> int:
        return self.side // self.patch // _FACTOR

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span with all tokens and marks."""
        wide, high = (pixels // self.side for pixels in self._sizes(width, height)[1])
        cells = self._cells
        return (Span(1, high * cells * (wide * cells + 1) + 1 + cells * (cells + 1)),)

    def crops(self, picture: Bytes) -> tuple[Bytes | Floats, ...]:
        """As `Cutter.crops`: the tiles, then the whole, interpolated without rounding."""
        height, width = picture.shape[:2]
        tall, side = width < height, self.side
        inner, outer = self._sizes(width, height)
        if tall:
            picture, inner, outer = picture.swapaxes(0, 1), inner[::-1], outer[::-1]
        canvas = np.full((outer[1], outer[0], 3), 255, np.uint8)
        top = (outer[1] - inner[1]) // 2
        canvas[top : top + inner[1]] = resized(np.ascontiguousarray(picture), *inner, BILINEAR)
        if tall:
            canvas = np.ascontiguousarray(canvas.swapaxes(0, 1))
        tiles = [
            canvas[y : y + side, x : x + side]
            for y in range(0, canvas.shape[0], side)
            for x in range(0, canvas.shape[1], side)
        ]
        whole = resized_grid(canvas.astype(np.float32), side, side, cubic)
        return (*tiles, whole)

    def spans(
        self, crops: Sequence[Floats], width: int, height: int, line_end: Floats | None
    ) -> Sequence[Floats]:
        """As `Assemble`; each crop's rows end with that for the end of a line and that between the parts."""
        cells, end, between = self._cells, crops[0][-2], crops[0][-1:]
        wide = self._sizes(width, height)[1][0] // self.side
        found = list[Floats]()
        for across, parts in ((wide, crops[:-1]), (1, crops[-1:])):
            grid = np.stack([part[:-_MARKS] for part in parts]).reshape(-1, across, cells, cells, len(end))
            lines = grid.transpose(0, 2, 1, 3, 4).reshape(-1, across * cells, len(end))
            ends = np.broadcast_to(end, (len(lines), 1, len(end)))
            found.append(np.concatenate([lines, ends], axis=1).reshape(-1, len(end)))
        tiles, whole = found
        return (np.concatenate([whole, between, tiles] if self.whole_first else [tiles, between, whole]),)

    def _sizes(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The width and height of the picture, and those with bars, which are whole tiles."""
        long, short = max(width, height), min(width, height)
        ratio = long / short
        tiles = max(each for each in range(1, self.most + 1) if each * math.ceil(each / ratio) <= self.most)
        across = tiles * self.side
        down = max(1, int(across / ratio))
        inner, outer = (across, down), (across, -(-down // self.side) * self.side)
        return (inner, outer) if width >= height else (inner[::-1], outer[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """`marks` are the rows before the projector (2, 4 E): for the end of a line, and between the parts."""

    projector: Projector
    marks: Floats


@dataclass(frozen=True, slots=True)
class MarkedTokens:
    """A `TokensShape`: two linear layers over squares of patches, and over the marks, which come last."""

    shape: ProjectorShape
    names: tuple[str, str]

    @property
    def outputs(self) -> int:
        return self.shape.outputs

    def build(self, source: WeightSource, names: ProjectorNames) -> _Parts:
        inputs = self.shape.inputs
        end, between = self.names
        marks = source.vector(end, 1, 1, 1, inputs), source.vector(between, 1, 1, inputs)
        return _Parts(self.shape.build(source, names), np.concatenate([m.reshape(1, inputs) for m in marks]))

    def tokens(self, backend: Backend, parts: _Parts, most: int) -> ProjectorPass:
        shape = replace(self.shape, merge=partial(_marked, parts.marks))
        return ProjectorPass(backend, shape, parts.projector, most + _MARKS * _FACTOR**2)


def _marked(marks: Floats, states: Floats, rows: int, columns: int, factor: int) -> Floats:
    """`joined`, and the marks."""
    return np.concatenate([joined(states, rows, columns, factor), marks])


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Phi3VForCausalLM`, whose config.json leaves the tower's sizes out: they are those of tensors."""
    whole_first = inner(config, "embd_layer").text("hd_transform_order", "sub_glb") == "glb_sub"
    tower = _EMBED + "img_processor.vision_model."
    layers = SIGLIP.under(tower)
    shape = _tower(layers, tower, tensors)
    patches, positions = folder_patches(tower)
    kernels = tensors.get(patches + ".weight")
    patch = kernels.shape[-1] if kernels is not None and len(kernels.shape) == 4 else 1
    table = square_number(max(2, rows_of(tensors, positions)) - 1)
    side = math.isqrt(table) * patch
    whole_patches(side, patch, _FACTOR)
    features = feature_layers(inner(config, "img_processor"), "layer_idx", shape.layers, -2)
    inputs, outputs = shape.width * _FACTOR**2, config.integer("hidden_size", 1, MOST_WIDTH, 3072)
    tiles = HdTiles(side, patch, processor.integer("num_crops", 1, _MOST_TILES, _TILES), whole_first)
    projection = _EMBED + "img_projection."
    return PatchDesign(
        SPEC, shape,
        PatchNames(
            layers, patches, positions, ProjectorNames(projection + "0", projection + "2"),
            before=tower + "pre_layrnorm", class_row=tower + "embeddings.class_embedding",
        ),
        patch, table, normalisation(processor, CLIP_MEAN, CLIP_DEVIATION), tiles,
        MarkedTokens(
            ProjectorShape(inputs, outputs, outputs, factor=_FACTOR), (_EMBED + "sub_GN", _EMBED + "glb_GN")
        ),
        features, assemble=tiles.spans,
    )  # fmt: skip


def _tower(names: TowerNames, prefix: str, tensors: Tensors) -> TowerShape:
    """The shape of CLIP's tower, whose heads all have the same size."""
    width = rows_of(tensors, prefix + "embeddings.class_embedding")
    layers = layer_count(tensors, f"{names.layer}{names.query}.weight")
    mlp = rows_of(tensors, f"{names.layer.format(0)}{names.up}.weight")
    heads = width // _HEAD
    return TowerShape(width, layers, max(1, heads), mlp, _EPS, QUICK, head_dim=_HEAD if heads else 0)


PHI3_V = Family("phi3_v", ("Phi3VForCausalLM",), (), from_hf, None)
