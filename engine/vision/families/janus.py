"""Janus and Janus-Pro (arXiv 2410.13848, 2501.17811), which here read pictures and draw none: a SigLIP tower
over one square, and linear layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import UnsupportedModel
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
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
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.images import BICUBIC, Normalisation, padded_to_square, resized
from engine.vision.patch_encoder import PatchDesign, PatchNames
from engine.vision.projector import ProjectorNames, ProjectorShape
from engine.vision.tower import SIGLIP, TowerShape
from engine.words import _

SPEC = VisionSpec("janus", "<image_placeholder>", "<image_placeholder>")
_TOWER = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 384,
    "patch_size": 16,
}  # fmt: skip
_PREFIXES = ("model.vision_model.", "vision_model.")
_LEAST = 14
"""Pixels of the shorter side at least."""


@dataclass(frozen=True, slots=True)
class Square:
    """The picture with a longer side of `side` pixels, in the middle of a square of one colour."""

    side: int
    patch: int
    filter: int
    colour: tuple[int, int, int]
    least: int = _LEAST

    @property
    def most_patches(self) -> int:
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span between its marks."""
        cells = self.side // self.patch
        return ("<begin_of_image>", Span(cells, cells), "<end_of_image>")

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        scale = self.side / max(width, height)
        wide, high = (max(round(each * scale), self.least) for each in (width, height))
        return (padded_to_square(resized(picture, wide, high, self.filter), self.colour),)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`JanusForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    width = vision.integer("hidden_size", 1, MOST_WIDTH)
    ratio = vision.number("mlp_ratio", 0.1, 64.0, 4.0)
    shape = tower_from_hf(vision.replaced("intermediate_size", max(1, int(width * ratio))), "gelu")
    if vision.flag("use_qk_norm", False) or vision.integer("depth", 1, 64, 2) != 2:
        raise UnsupportedModel(
            _(
                "The vision encoder of the model has norms of queries and keys, or a projector of other "
                "than two layers, which is not supported. Choose another model."
            )
        )
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    aligner = tower.removesuffix("vision_model.") + "aligner."
    names = PatchNames(
        replace(SIGLIP, output="self_attn.projection_layer").under(tower),
        tower + "embeddings.patch_embedding", tower + "embeddings.position_embedding.weight",
        ProjectorNames(aligner + "fc1", aligner + "hidden_layers.0"), tower + "post_layernorm",
    )  # fmt: skip
    pixels = normalisation(processor, HALF, HALF)
    crop = Square(
        square(vision, "image_size"), square(vision, "patch_size"), resampling(processor), _colour(pixels),
        processor.integer("min_size", 1, MOST_SIDE, _LEAST),
    )  # fmt: skip
    outputs = vision.integer("projection_dim", 1, MOST_WIDTH, 2048)
    return _design(shape, names, crop, pixels, outputs)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`janus_pro` in llama.cpp's mmproj files. Their GELU is the exact one, as in the model's own code."""
    shape = replace(tower_from_gguf(keys), activation="gelu")
    names = PatchNames(gguf_names(tensors, shape), *PATCHES, ProjectorNames("mm.0", "mm.1"), "v.post_ln")
    side, patch = keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, 1 << 10)
    pixels = normalisation(keys, HALF, HALF)
    crop = Square(side, patch, BICUBIC, _colour(pixels))
    return _design(shape, names, crop, pixels, rows_of(tensors, "mm.1.weight"))


def _colour(pixels: Normalisation) -> tuple[int, int, int]:
    """That of the bars beside a picture."""
    red, green, blue = (min(max(int(each * 255), 0), 255) for each in pixels.mean)
    return red, green, blue


def _design(
    shape: TowerShape, names: PatchNames, crop: Square, pixels: Normalisation, outputs: int
) -> PatchDesign:
    table = whole_patches(crop.side, crop.patch) ** 2
    projector = ProjectorShape(shape.width, outputs, outputs, shape.activation)
    return PatchDesign(SPEC, shape, names, crop.patch, table, pixels, crop, projector, (shape.layers,))


JANUS = Family("janus", ("JanusForConditionalGeneration",), ("janus_pro",), from_hf, from_gguf)
