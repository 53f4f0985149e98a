"""GOT-OCR 2.0 (arXiv 2409.01704, section 3.2): the image encoder of Segment Anything over one square picture,
or over tiles of it; convolutions make 256 tokens of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.models.headers.keys import Keys
from engine.tensors import Floats
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.sam_encoder import SamDesign
from engine.vision.families.tiled.internvl import Tiles
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
from engine.vision.layers.sam import SamNames, SamShape

SPEC = VisionSpec("got_ocr2", "<imgpad>", "<imgpad>")
_PREFIXES = ("model.vision_tower.", "vision_tower.")
_MOST_TILES = 1 << 8
_SAM = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 1024,
    "patch_size": 16,
}  # fmt: skip
_WHOLE = (2, 5, 8, 11)
"""Layers without windows, where config.json does not say."""
_MOST_CELLS = 1 << 7
"""Patches of a window's side."""


def sam_from_hf(vision: Keys, channels: tuple[int, ...]) -> SamShape:
    """The shape of an encoder of config.json in the words of `transformers`; `channels` are as in `SamShape`.
    Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    vision = vision.over(_SAM)
    width = vision.integer("hidden_size", 1, MOST_WIDTH)
    ratio = vision.number("mlp_ratio", 0.1, 64.0, 4.0)
    inner = vision.integer("mlp_dim", 1, MOST_WIDTH, max(1, int(width * ratio)))
    tower = tower_from_hf(vision.replaced("intermediate_size", inner), "gelu")
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    whole_patches(side, patch)
    layers = range(tower.layers)
    whole = vision.integers("global_attn_indexes", 0, tower.layers - 1) or [
        each for each in _WHOLE if each in layers
    ]
    return SamShape(
        tower.width, tower.layers, tower.heads, tower.mlp_width, side, patch,
        vision.integer("window_size", 1, _MOST_CELLS, 14), frozenset(whole), channels, tower.eps,
        tower.activation,
    )  # fmt: skip


def sam_names(tower: str, halves: tuple[str, str]) -> SamNames:
    """The names in `transformers`, under the prefix of the encoder."""
    return SamNames(
        tower + "patch_embed.projection", tower + "pos_embed", tower + "layers.{}.",
        ("layer_norm1", "attn.qkv", "attn.proj", "layer_norm2", "mlp.lin1", "mlp.lin2"),
        ("attn.rel_pos_h", "attn.rel_pos_w"),
        (
            tower + "neck.conv1", tower + "neck.layer_norm1", tower + "neck.conv2",
            tower + "neck.layer_norm2",
        ),
        halves,
    )  # fmt: skip


def as_cut(crops: Sequence[Floats], width: int, height: int, marks: Sequence[Floats]) -> Sequence[Floats]:
    """As `Assemble`: each crop is a span."""
    return crops


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`GotOcr2ForConditionalGeneration`."""
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 1024)
    vision = inner(config, "vision_config")
    channels = vision.integer("output_channels", 1, MOST_WIDTH, 256)
    shape = sam_from_hf(vision, (channels, 2 * channels, width))
    tower = prefix_of(tensors, "patch_embed.projection.weight", _PREFIXES)
    last = tower.replace("vision_tower.", "multi_modal_projector.")
    names = sam_names(tower, (last + "conv_upsampler1", last + "conv_upsampler2"))
    least = processor.integer("min_patches", 1, _MOST_TILES, 1)
    most = processor.integer("max_patches", least, _MOST_TILES, max(least, 12))
    if not processor.flag("crop_to_patches", False):
        least = most = 1
    cell = shape.side // shape.rows(shape.side)
    tiles = Tiles(shape.side, shape.patch, cell, resampling(processor), least, most)
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return SamDesign(SPEC, shape, names, pixels, tiles, last + "multimodal_projector", width, as_cut)


GOT_OCR2 = Family("got_ocr2", ("GotOcr2ForConditionalGeneration",), (), from_hf, None)
