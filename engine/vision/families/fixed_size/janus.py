"""Janus and Janus-Pro (arXiv 2410.13848, 2501.17811), which here read pictures and draw none, and DeepSeek-VL
with 1.3B (arXiv 2403.05525): a SigLIP tower over one square, and linear layers.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    folder_patches,
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
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation, padded_to_square, resized
from engine.words import _

SPEC = VisionSpec("janus", "<image_placeholder>", "<image_placeholder>")
DEEPSEEK_SPEC = VisionSpec("deepseek_vl", "<image_placeholder>", "<image_placeholder>")
_MARKS = "<begin_of_image>", "<end_of_image>"
_TOWER = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 384,
    "patch_size": 16,
}  # fmt: skip
_DEEPSEEK_TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 16,
}  # fmt: skip
_PREFIXES = ("model.vision_model.", "vision_model.")
_DEEPER = "model.vision_model.vision_model."
"""The prefix of DeepSeek-VL's tower in the folders of some versions of `transformers`."""
_LEAST = 14
"""Pixels of the shorter side at least."""


@dataclass(frozen=True, slots=True)
class Square:
    """The picture with a longer side of `side` pixels, in the middle of a square of one colour. In prompts it
    stands between `marks`.
    """

    side: int
    patch: int
    filter: int
    colour: tuple[int, int, int]
    least: int = _LEAST
    marks: tuple[str, str] = _MARKS

    @property
    def most_patches(self) -> int:
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span."""
        cells, (before, after) = self.side // self.patch, self.marks
        return tuple(piece for piece in (before, Span(cells, cells), after) if piece)

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


def from_hf_deepseek(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`DeepseekVLForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_DEEPSEEK_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", (*_PREFIXES, _DEEPER))
    aligner = tower[: tower.index("vision_model.")] + "aligner."
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower), ProjectorNames(aligner + "linear1", aligner + "linear2"),
        tower + "post_layernorm",
    )  # fmt: skip
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    crop = Square(
        square(vision, "image_size"), square(vision, "patch_size"), resampling(processor), _colour(pixels),
        processor.integer("min_size", 1, MOST_SIDE, _LEAST), ("", ""),
    )  # fmt: skip
    outputs = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 4096)
    return replace(_design(shape, names, crop, pixels, outputs, "gelu"), spec=DEEPSEEK_SPEC)


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
    shape: TowerShape, names: PatchNames, crop: Square, pixels: Normalisation, outputs: int,
    activation: str = "",
) -> PatchDesign:  # fmt: skip
    """The projector's `activation` is the tower's if it is empty."""
    table = whole_patches(crop.side, crop.patch) ** 2
    projector = ProjectorShape(shape.width, outputs, outputs, activation or shape.activation)
    return PatchDesign(SPEC, shape, names, crop.patch, table, pixels, crop, projector, (shape.layers,))


JANUS = Family("janus", ("JanusForConditionalGeneration",), ("janus_pro",), from_hf, from_gguf)
DEEPSEEK_VL = Family("deepseek_vl", ("DeepseekVLForConditionalGeneration",), (), from_hf_deepseek, None)
