"""Aya Vision (arXiv 2505.08751) and Command A Vision (its model card): a SigLIP tower over square tiles, and
the whole picture as one more; squares of patches are joined to one token by a gated feed-forward part.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, linear_parts
from engine.models.headers.keys import Keys
from engine.models.layers.parts import GatedMlp
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.fixed_size.llava import PREFIXES
from engine.vision.families.tiled import internvl
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_WIDTH,
    feature_layers,
    folder_patches,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import resized
from engine.vision.pictures.tiling import covering_grid, tiles_of
from engine.words import _

_PATCH, _START, _END, _LINE = "<|IMG_PATCH|>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_LINE_BREAK|>"
AYA_SPEC = VisionSpec("aya_vision", "<image>", _PATCH)
COMMAND_SPEC = VisionSpec("command_vision", _PATCH, _PATCH)
_AYA_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26, "num_attention_heads": 14,
    "image_size": 384, "patch_size": 14,
}  # fmt: skip
_COMMAND_TOWER = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 27, "num_attention_heads": 12,
    "image_size": 512, "patch_size": 16,
}  # fmt: skip
_MOST_TILES = 1 << 10


class AyaTiles(internvl.Tiles):
    """As InternVL's, with the number of each tile before it."""

    __slots__ = ()

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        spans = [piece for piece in super().layout(width, height) if isinstance(piece, Span)]
        found = list[Piece]()
        for number, span in enumerate(spans[:-1], 1):
            found += [f"TILE_{number}", span]
        return (_START, *found, "TILE_GLOBAL", spans[-1], _END)


@dataclass(frozen=True, slots=True)
class CommandTiles:
    """At most `most` tiles of `side` pixels square, to which the picture is made to fit; of several, the
    last is the whole picture.
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
        wide, high = covering_grid(width, height, self.side, self.most)
        tiles, cells = wide * high, self.side // self.cell
        tiles += 1 if tiles > 1 else 0
        tile: tuple[Piece, ...] = (Span(cells, cells), _LINE)
        return (_START, *tile * tiles, _END)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        wide, high = covering_grid(width, height, self.side, self.most)
        tiles = tiles_of(picture, wide, high, self.side, self.filter)
        if len(tiles) == 1:
            return tiles
        return (*tiles, resized(picture, self.side, self.side, self.filter))


def from_hf_aya(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`AyaVisionForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_AYA_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    factor = config.integer("downsample_factor", 1, 64, 2)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    most = processor.integer("max_patches", 1, _MOST_TILES, 12)
    tiles = AyaTiles(
        side, patch, patch * factor, resampling(processor), processor.integer("min_patches", 1, most, 1), most
    )
    features = feature_layers(config, "vision_feature_layer", shape.layers, -1)
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 8192)
    hidden = config.integer("alignment_intermediate_size", 1, MOST_WIDTH, width)
    eps = config.number("adapter_layer_norm_eps", 0.0, 1.0, 1e-6)
    return _design(AYA_SPEC, shape, tiles, (factor, hidden, width), features, processor, tensors, eps)


def from_hf_command(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Cohere2VisionForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_COMMAND_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    factor = config.integer("downsample_factor", 1, 64, 2)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    most = processor.integer("max_patches", 1, _MOST_TILES, 12)
    tiles = CommandTiles(side, patch, patch * factor, resampling(processor), most)
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 8192)
    hidden = config.integer("alignment_intermediate_size", 1, MOST_WIDTH, 36864)
    return _design(
        COMMAND_SPEC, shape, tiles, (factor, hidden, width), (shape.layers,), processor, tensors, None
    )


def _design(
    spec: VisionSpec, shape: TowerShape, tiles: AyaTiles | CommandTiles, sizes: tuple[int, int, int],
    features: tuple[int, ...], processor: Keys, tensors: Tensors, eps: float | None,
) -> PatchDesign:  # fmt: skip
    """`sizes` are the side of a square that is joined, the width of the part that is gated, and that of rows.
    Without `eps` there is no norm before it, but one after the tower.
    """
    factor, hidden, outputs = sizes
    if hidden % 2:
        raise BadCheckpoint(
            _(
                "alignment_intermediate_size is {hidden}, but an even number was expected; the file is "
                "damaged.",
                hidden=hidden,
            )
        )
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", PREFIXES)
    whole = tower[: tower.index("vision_tower.")] + "multi_modal_projector."
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower), ProjectorNames(norm=whole + "layernorm"),
        "" if eps is not None else tower + "post_layernorm",
    )  # fmt: skip
    inputs = shape.width * len(features) * factor**2
    projector = ProjectorShape(
        inputs, outputs, norm="none" if eps is None else "layer", eps=eps or 0.0, factor=factor,
        make=partial(_gated, whole, inputs, hidden, outputs),
    )  # fmt: skip
    table = whole_patches(tiles.side, tiles.patch, factor) ** 2
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return PatchDesign(spec, shape, names, tiles.patch, table, pixels, tiles, projector, features)


def _gated(at: str, inputs: int, hidden: int, outputs: int, source: WeightSource) -> GatedMlp:
    """The first matrix has what is gated before the gate."""
    half = hidden // 2
    up, gate = linear_parts(source, at + "linear_1", (np.arange(half), np.arange(half, hidden)), inputs, None)
    return GatedMlp(gate, up, linear(source, at + "linear_2", outputs, half, None), half)


AYA_VISION = Family("aya_vision", ("AyaVisionForConditionalGeneration",), (), from_hf_aya, None)
COMMAND_VISION = Family(
    "command_vision", ("Cohere2VisionForConditionalGeneration",), (), from_hf_command, None
)
