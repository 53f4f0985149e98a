"""Llama 4 (its model card): a tower with learned positions and rope by row and column over square tiles, and
the whole picture as one more; squares of patches are joined to one token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Linear
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rotated_dim,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.grid import frequencies
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BILINEAR, Normalisation, resized
from engine.vision.pictures.tiling import covering_grid

SPEC = VisionSpec("llama4", "<|image|>", "<|patch|>")
_TOWER = {
    "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_attention_heads": 16,
    "image_size": 448, "patch_size": 14, "layer_norm_eps": 1e-5,
}  # fmt: skip
_BASE = 10000.0
_MOST_TILES = 1 << 10
_PREFIXES = ("vision_model.", "model.vision_model.")


@dataclass(frozen=True, slots=True)
class Tiles:
    """At most `most` tiles of `side` pixels square, in the grid that holds the picture with the least
    enlargement, or else with the least reduction. It is at the top left of the grid, whose rest is black;
    where a side is shorter than a tile, it is enlarged to one. Of several tiles, the last is all of the
    picture, made to fit.
    """

    side: int
    patch: int
    cell: int
    filter: int
    most: int

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        wide, high = self.grid(width, height)
        span = Span(self.side // self.cell, self.side // self.cell)
        found: list[Piece] = []
        if wide * high > 1:
            for _row in range(high):
                found += [span, *[piece for _ in range(wide - 1) for piece in ("<|tile_x_separator|>", span)]]
                found.append("<|tile_y_separator|>")
        return ("<|image_start|>", *found, "<|image|>", span, "<|image_end|>")

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        side, (wide, high) = self.side, self.grid(width, height)
        most_width, most_height = min(max(width, side), wide * side), min(max(height, side), high * side)
        across, down = most_width / width, most_height / height
        if across < down:
            size = most_width, min(int(height * across), most_height)
        else:
            size = min(int(width * down), most_width), most_height
        small = resized(picture, max(1, size[0]), max(1, size[1]), self.filter)
        canvas = np.zeros((high * side, wide * side, 3), np.uint8)
        canvas[: small.shape[0], : small.shape[1]] = small
        tiles = canvas.reshape(high, side, wide, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)
        whole = () if len(tiles) == 1 else (resized(picture, side, side, self.filter),)
        return (*tiles, *whole)

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another."""
        return covering_grid(width, height, self.side, self.most, np.float32)


@dataclass(frozen=True, slots=True)
class _Adapter:
    """out(gelu(down(gelu(up(x)))))."""

    up: Linear
    down: Linear
    out: Linear

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        x = ops.activate(self.up(ops, x), "gelu")
        return self.out(ops, ops.activate(self.down(ops, x), "gelu"), residual)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Of what follows the tower: `outputs` is the width of the language model's rows."""

    inputs: int
    hidden: int
    outputs: int


def _adapter(shape: _Shape, names: tuple[str, str, str], source: WeightSource) -> _Adapter:
    up, down, out = names
    return _Adapter(
        linear(source, up, shape.hidden, shape.inputs, False),
        linear(source, down, shape.hidden, shape.hidden, False),
        linear(source, out, shape.outputs, shape.hidden, False),
    )


def angles(dim: int, base: float, rows: int, columns: int, *, first: int = 1) -> Floats:
    """Those of rope for heads of `dim` dimensions, whose first half turns by columns; both are counted from
    `first` on.
    """
    pairs = frequencies(dim // 4, dim // 2, base)
    down, across = (part[:, None] + first for part in np.divmod(np.arange(rows * columns), columns))
    return np.concatenate([across * pairs, down * pairs], axis=1).astype(np.float32)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Llama4ForConditionalGeneration`."""
    vision = inner(config, "vision_config").renamed(layer_norm_eps="norm_eps").over(_TOWER)
    tower = prefix_of(tensors, "patch_embedding.linear.weight", _PREFIXES)
    projector = tower.removesuffix("vision_model.") + "multi_modal_projector.linear_1"
    layers = replace(
        SIGLIP, layer="model.layers.{}.", attention_norm="input_layernorm", output="self_attn.o_proj",
        mlp_norm="post_attention_layernorm",
    )  # fmt: skip
    names = PatchNames(
        layers.under(tower), tower + "patch_embedding.linear", tower + "positional_embedding_vlm",
        ProjectorNames(), tower + "layernorm_post", tower + "layernorm_pre", tower + "class_embedding",
    )  # fmt: skip
    shape = tower_from_hf(vision, "gelu")
    ratio = vision.number("pixel_shuffle_ratio", 1 / 64, 1.0, 0.5)
    adapter = _Shape(
        0, vision.integer("projector_output_dim", 1, MOST_WIDTH, 4096),
        inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 5120),
    )  # fmt: skip
    rope = vision.table("rope_parameters") or vision
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    tiles = Tiles(
        side, patch, patch * round(1 / ratio), resampling(processor, BILINEAR),
        processor.integer("max_patches", 1, _MOST_TILES, 16),
    )  # fmt: skip
    return _design(
        shape, names, tiles, adapter,
        (tower + "vision_adapter.mlp.fc1", tower + "vision_adapter.mlp.fc2", projector),
        normalisation(processor, HALF, HALF), rope.number("rope_theta", 1.0, 1e12, _BASE),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`llama4` in llama.cpp's mmproj files. Their GELU is the exact one, as in the model's own code."""
    shape = replace(tower_from_gguf(keys), activation="gelu")
    names = PatchNames(
        gguf_names(tensors, shape), *PATCHES, ProjectorNames(), "v.post_ln", "v.pre_ln", "v.class_embd"
    )
    side, patch = keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, 1 << 10)
    factor = keys.integer("projector.scale_factor", 1, 64, 2)
    parts = ("mm.model.mlp.1", "mm.model.mlp.2", "mm.model.fc")
    hidden, outputs = (rows_of(tensors, name + ".weight") for name in parts[1:])
    tiles = Tiles(side, patch, patch * factor, BILINEAR, 16)
    adapter = _Shape(0, hidden, outputs)
    return _design(shape, names, tiles, adapter, parts, normalisation(keys, HALF, HALF), _BASE)


def _design(
    shape: TowerShape, names: PatchNames, tiles: Tiles, adapter: _Shape, parts: tuple[str, str, str],
    pixels: Normalisation, base: float,
) -> PatchDesign:  # fmt: skip
    factor = tiles.cell // tiles.patch
    shape, inputs = replace(shape, rotated=True), shape.width * factor**2
    projector = ProjectorShape(
        inputs, adapter.outputs, factor=factor,
        make=partial(_adapter, replace(adapter, inputs=inputs), parts),
    )  # fmt: skip
    return PatchDesign(
        SPEC, shape, names, tiles.patch, whole_patches(tiles.side, tiles.patch, factor) ** 2, pixels, tiles,
        projector, (shape.layers,), flat=True, class_last=True,
        angles=partial(angles, rotated_dim(shape), base),
    )  # fmt: skip


LLAMA4 = Family("llama4", ("Llama4ForConditionalGeneration",), ("llama4",), from_hf, from_gguf)
