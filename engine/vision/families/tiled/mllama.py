"""Llama 3.2 Vision: a tower over all tiles of a picture at once, at whose rows layers of the language model
look (`engine.models.layers.attention.cross`).
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architectures.llama.mllama import EXTRA_ROWS, VISION_CLASS, VISION_PREFIXES
from engine.models.headers.decoder import MAX_VOCAB
from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.tiled_encoder import Canvas, TiledDesign, TiledNames
from engine.vision.headers import (
    HALF,
    MOST_LAYERS,
    MOST_WIDTH,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import BILINEAR
from engine.words import _

_MARK = "<|image|>"
_TOWER = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
    "image_size": 448, "patch_size": 14, "layer_norm_eps": 1e-5,
}  # fmt: skip
_INNER = (3, 7, 15, 23, 30)
_GRIDS = 8
"""Of four tiles at most, which is what models have that do not say."""
_MOST_TILES = 64


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`MllamaForConditionalGeneration`."""
    vision = inner(config, "vision_config").renamed(
        num_attention_heads="attention_heads", layer_norm_eps="norm_eps"
    )
    shape = tower_from_hf(vision.over(_TOWER), "gelu")
    at = prefix_of(tensors, VISION_CLASS, VISION_PREFIXES)
    layers = replace(
        SIGLIP, layer="transformer.layers.{}.", attention_norm="input_layernorm", output="self_attn.o_proj",
        mlp_norm="post_attention_layernorm",
    )  # fmt: skip
    names = TiledNames(
        at, layers.under(at), replace(layers, layer="global_" + layers.layer).under(at),
        at.removesuffix("vision_model.") + "multi_modal_projector",
    )  # fmt: skip
    vision = vision.over(_TOWER)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    patches = whole_patches(side, patch) ** 2
    within = vision.integers("intermediate_layers_indices", 0, shape.layers - 1)
    if vision.raw("intermediate_layers_indices") is None:
        within = _INNER
    text = inner(config, "text_config")
    rows = text.integer("vocab_size", 1, MAX_VOCAB, 128256) + EXTRA_ROWS
    token = config.integer("image_token_index", 0, rows - 1, 128256)
    canvas, grids = _canvas(vision, processor, side)
    spec = VisionSpec("mllama", _MARK, _MARK, looked_at=token, seen_rows=canvas.most * (patches + 1))
    return TiledDesign(
        spec, shape,
        vision.integer("num_global_layers", 0, MOST_LAYERS, 8), within, patch,
        grids, canvas, normalisation(processor, HALF, HALF),
        text.integer("hidden_size", 1, MOST_WIDTH, 4096), names,
    )  # fmt: skip


def _canvas(vision: Keys, processor: Keys, side: int) -> tuple[Canvas, int]:
    """The tiles, and how many grids the tables know. Raises `BadCheckpoint` if pictures may have others."""
    tiles = vision.integer("max_num_tiles", 1, _MOST_TILES, 4)
    most = processor.integer("max_image_tiles", 1, _MOST_TILES, 4)
    listed = vision.raw("supported_aspect_ratios")
    grids = len(listed) if isinstance(listed, list) else _GRIDS
    canvas = Canvas(side, most, resampling(processor, BILINEAR))
    if most != tiles or len(canvas.grids()) > grids:
        raise BadCheckpoint(
            _(
                "Pictures are cut into up to {most} tiles, but the vision encoder knows up to {tiles} in "
                "{grids} grids; the files do not fit together. Download the model again.",
                most=most,
                tiles=tiles,
                grids=grids,
            )
        )
    return canvas, grids


MLLAMA = Family("mllama", ("MllamaForConditionalGeneration",), (), from_hf, None)
