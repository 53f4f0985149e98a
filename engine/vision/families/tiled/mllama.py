"""Llama 3.2 Vision: a tower over all tiles of a picture at once, at whose rows layers of the language model
look (`engine.models.layers.attention.cross`).
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architectures.llama.mllama import EXTRA_ROWS, GGUF_CLASS, VISION_CLASS, VISION_PREFIXES
from engine.models.headers.decoder import MAX_VOCAB
from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.tiled_encoder import Canvas, TableNames, TiledDesign, TiledNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    HALF,
    MOST_LAYERS,
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
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import BILINEAR
from engine.words import _

_MARK = "<|image|>"
_TOWER = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
    "image_size": 448, "patch_size": 14, "layer_norm_eps": 1e-5,
}  # fmt: skip
_INNER = (3, 7, 15, 23, 30)
_TABLES = "gated", "pre_tile", "post_tile"
"""What the names of the tables of positions begin with."""
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
        spec, shape, vision.integer("num_global_layers", 0, MOST_LAYERS, 8), within, patch, grids, canvas,
        normalisation(processor, HALF, HALF), text.integer("hidden_size", 1, MOST_WIDTH, 4096), _names(at),
    )  # fmt: skip


def _names(at: str) -> TiledNames:
    """Those of a folder, which begin with `at`."""
    layers = replace(
        SIGLIP, layer="transformer.layers.{}.", attention_norm="input_layernorm", output="self_attn.o_proj",
        mlp_norm="post_attention_layernorm",
    )  # fmt: skip
    positions, before, after = (f"{at}{name}_positional_embedding." for name in _TABLES)
    return TiledNames(
        at + "patch_embedding", at + "class_embedding",
        TableNames(positions + "embedding", positions + "gate"),
        TableNames(before + "embedding.weight", before + "gate"),
        TableNames(positions + "tile_embedding.weight", positions + "gate"),
        TableNames(after + "embedding.weight", after + "gate"), (at + "layernorm_pre", at + "layernorm_post"),
        layers.under(at), replace(layers, layer="global_" + layers.layer).under(at),
        ("gate_attn", "gate_ffn"), at.removesuffix("vision_model.") + "multi_modal_projector",
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """The encoder in the files of Ollama's converter, whose gates are factors."""
    shape = replace(tower_from_gguf(keys), activation="gelu")
    side, patch = keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, MOST_SIDE)
    patches = whole_patches(side, patch) ** 2
    layers = gguf_names(tensors, shape)
    positions, tiles, before, after = (
        TableNames(f"v.{name}_embd.weight", f"v.{name}_embd.gate")
        for name in ("position", "tile_position", "pre_tile_position", "post_tile_position")
    )
    names = TiledNames(
        PATCHES[0], GGUF_CLASS, positions, before, tiles, after, ("v.pre_ln", "v.post_ln"), layers,
        replace(layers, layer="v.global.blk.{}."), ("attn_gate", "ffn_gate"), "mm.0", curved=False,
    )  # fmt: skip
    canvas = Canvas(side, keys.integer("max_num_tiles", 1, _MOST_TILES), BILINEAR)
    token = rows_of(tensors, "output.weight")  # the first row that is for pictures alone
    return TiledDesign(
        VisionSpec("mllama", _MARK, _MARK, looked_at=token, seen_rows=canvas.most * (patches + 1)), shape,
        keys.integer("global.block_count", 0, MOST_LAYERS),
        keys.integers("intermediate_layers_indices", 0, shape.layers - 1), patch, len(canvas.grids()), canvas,
        normalisation(keys, CLIP_MEAN, CLIP_DEVIATION), keys.integer("projection_dim", 1, MOST_WIDTH), names,
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


MLLAMA = Family("mllama", ("MllamaForConditionalGeneration",), ("mllama",), from_hf, from_gguf)
