"""Molmo 2 (the code of `transformers`), of which videos are not read here. All tokens of a picture and its
marks attend to each other in both directions; those of several pictures do so only to earlier ones, since
what was read before stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.base import AttentionShape
from engine.models.headers.decoder import MAX_VOCAB
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_a_multiple, unsupported
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.pooled_encoder import Marks, PooledDesign, PooledNames
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_WIDTH,
    inner,
    normalisation,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.tower import SIGLIP, TowerNames
from engine.vision.pictures.overlapping import Overlapping

SPEC = VisionSpec("molmo2", "<|image|>", "<im_patch>", bidirectional=True)
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 25, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 72, "image_size": 378, "patch_size": 14,
}  # fmt: skip
_ADAPTER = {
    "hidden_size": 1152, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72,
    "intermediate_size": 18944, "text_hidden_size": 3584,
}  # fmt: skip
_FEATURES = "vision_feature_layer"
_MOST_CROPS = 1 << 7
_IDS = (
    ("low_res_image_start_token_id", 151940), ("image_start_token_id", 151936), ("image_patch_id", 151938),
    ("image_col_id", 151939), ("image_end_token_id", 151937),
)  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Molmo2ForConditionalGeneration`. Raises `BadCheckpoint` and `UnsupportedModel`."""
    published = config.table("vit_config")
    vision = (published or inner(config, "vision_config")).renamed(
        image_size="image_default_input_size", patch_size="image_patch_size"
    )
    vision = vision.over(_TOWER)
    adapter = inner(config, "adapter_config").renamed(**{_FEATURES: "vit_layers"}).over(_ADAPTER)
    tower, names = tower_from_hf(vision, "gelu_pytorch_tanh"), _names(tensors)
    layers = adapter.integers(_FEATURES, -tower.layers, tower.layers - 1) or (24, 18)
    features = tuple(layer % tower.layers + 1 for layer in layers)
    own = _attention(vision)
    tower = replace(tower, kv_heads=own.kv_heads, head_dim=own.head_dim)
    width = adapter.integer("text_hidden_size", 1, MOST_WIDTH)
    ids = (config.integer(name, 0, MAX_VOCAB, default) for name, default in _IDS)
    return PooledDesign(
        SPEC, tower, names, normalisation(processor, HALF, HALF), _cutter(vision, processor), features,
        _attention(adapter), adapter.integer("hidden_size", 1, MOST_WIDTH),
        adapter.integer("intermediate_size", 1, MOST_WIDTH), width, Marks(*ids), tensors.get(names.table),
    )  # fmt: skip


def _attention(keys: Keys) -> AttentionShape:
    """The attention of a square's patches. Raises `BadCheckpoint`."""
    heads, others = (
        keys.integer(name, 1, MOST_HEADS) for name in ("num_attention_heads", "num_key_value_heads")
    )
    if heads % others:
        raise not_a_multiple(heads, others)
    dim = keys.integer("head_dim", 1, MOST_WIDTH)
    return AttentionShape(heads, others, dim, dim**-0.5)


def _cutter(vision: Keys, processor: Keys) -> Overlapping:
    """Raises `BadCheckpoint`, also for crops that are nothing but margins, and `UnsupportedModel`."""
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    patches = whole_patches(side, patch)
    before, after = _two(processor, "overlap_margins", 0, (patches - 1) // 2, 4)
    pool = _two(processor, "pooling_size", 1, patches, 2)
    most = processor.integer("max_crops", 1, _MOST_CROPS, 8)
    return Overlapping(side, patch, most, before, after, pool)


def _two(keys: Keys, name: str, low: int, high: int, default: int) -> tuple[int, int]:
    """Two numbers, such as of lines and of columns. Raises `BadCheckpoint` and `UnsupportedModel`."""
    found = keys.integers(name, low, high) or (min(default, high),) * 2
    if len(found) != 2:
        raise unsupported(name, list(found))
    return found


def _names(tensors: Tensors) -> PooledNames:
    """The original names, or those of `transformers`."""
    at = "model.vision_backbone."
    if at + "image_vit.patch_embedding.weight" in tensors:
        tower, pooling, mlp = at + "image_vit.", at + "image_pooling_2d.", at + "image_projector."
        layers = TowerNames(
            tower + "transformer.resblocks.{}.", "attention_norm", *_published("attention."), "ffn_norm",
            "feed_forward.w1", "feed_forward.w2",
        )  # fmt: skip
        return PooledNames(
            layers, tower + "patch_embedding", tower + "positional_embedding", _published(pooling)[:3],
            pooling + "wo", (mlp + "w1", mlp + "w3", mlp + "w2"), "model.transformer.wte.weight",
        )  # fmt: skip
    tower, last = "model.vision_tower.", "model.multi_modal_projector."
    layers = replace(SIGLIP, layer="layers.{}.", output="self_attn.o_proj").under(tower)
    pooling, mlp = last + "image_pooling_2d.", last + "image_projector."
    return PooledNames(
        layers, tower + "patch_embedding", tower + "positional_embedding",
        tuple(f"{pooling}{each}_proj" for each in "qkv"), pooling + "o_proj",
        tuple(f"{mlp}{each}_proj" for each in ("gate", "up", "down")),
        "model.language_model.embed_tokens.weight",
    )  # fmt: skip


def _published(at: str) -> tuple[str, str, str, str]:
    return at + "wq", at + "wk", at + "wv", at + "wo"


MOLMO2 = Family("molmo2", ("Molmo2ForConditionalGeneration",), (), from_hf, None)
