"""Dots 3 Note: DeepSeek's latent attention, of which layers with windows have their own sizes, with scaled
latents, a normed key for rope and a gate for each head, and experts as DeepSeek V3 has them. The layers
without windows look at the positions alone that an indexer chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import by_sigmoid, dense_first
from engine.models.architectures.latent.deepseek_sparse import GGUF_INDEXED, INDEXED
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.latent import LatentAttention
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    each_layer,
    gguf_decoder,
    gguf_windows,
    hf_layer_types,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, hf_latent_decoder
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.models.headers.sparse import gguf_indexer, hf_indexer
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import LATENT_GGUF, LATENT_HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    INDEXED, output_gate="self_attn.g_proj",
    latent=replace(LATENT_HF, key_norm="self_attn.k_rope_only_layernorm"),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF_INDEXED, output_gate="attn_gate", latent=replace(LATENT_GGUF, key_norm="attn_k_norm")
)
_SLIDING, _CHOOSING, _FULL = "sliding_attention", "indexed_attention", "full_attention"
_MOST = 1 << 14
_DEFAULTS = {
    "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 46, "num_attention_heads": 128,
    "vocab_size": 152_064, "n_routed_experts": 256, "num_experts_per_tok": 8,
}  # fmt: skip
_OF_WINDOWS = {
    "num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "head_dim": 256,
    "qk_nope_head_dim": 192, "v_head_dim": 128,
}  # fmt: skip
"""The sizes of layers with windows, and the next those of others."""
_OF_OTHERS = {
    "q_lora_rank": 1024, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
_SIZES_OF_WINDOWS = (
    "attention.kv_lora_rank", "attention.key_length", "attention.value_length",
    "attention.key_length_mla", "attention.value_length_mla",
)  # fmt: skip
"""The keys of GGUF metadata that layers with windows have with an end of their own."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Dots3NoteForCausalLM`, and the text model of `Dots3NoteForConditionalGeneration`, whose authors have
    its keys outside of an object.
    """
    keys = keys.inner("text_config").over(_DEFAULTS)
    shape = hf_latent_decoder(
        keys, (512, 1024), (128, 64, 128), rms_norm_eps=1e-5, max_position_embeddings=524_288
    )
    layers = shape["layers"]
    kinds, own = _kinds(keys, layers), _of_windows(keys, layers)
    whole, sliding = (_scaled(each, shape["width"], shape["norm_eps"]) for each in (shape["latent"], own[1]))
    slides = [kind == _SLIDING for kind in kinds]
    window = keys.integer("sliding_window_size", 1, MAX_CONTEXT, 512)
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, window)
    other = next((kind for kind in kinds if kind != _SLIDING), _CHOOSING)
    latents = tuple(sliding if one else whole for one in slides)
    read = shape | {
        "rope": _rope(keys, other, whole, 8e7, "rope_theta"),
        "rope_local": _rope(keys, _SLIDING, sliding, 5e4, "swa_rope_theta"), "latent": whole,
        "layer_latents": latents, "windows": tuple(window if one else 0 for one in slides),
        "layer_heads": tuple((1, int(cache_shape(latent)["head_dim"])) for latent in latents),
        "layer_queries": tuple(own[0] if one else shape["heads"] for one in slides),
    }  # fmt: skip
    if _CHOOSING in kinds:
        choosing = frozenset(layer for layer, kind in enumerate(kinds) if kind == _CHOOSING)
        found = hf_indexer(keys, read, 64, sharing=False, interleaved=True)
        read["indexer"] = replace(found, layers=choosing)
    return ModelConfig(**read, output_gate="head", experts=_experts(keys, layers))


def _kinds(keys: Keys, layers: int) -> tuple[str, ...]:
    """Of each layer; the authors call those that choose whole, unless they say otherwise."""
    found = hf_layer_types(keys, layers, (_SLIDING, _CHOOSING, _FULL))
    says = keys.has("use_dsa") or keys.raw("per_layer_config") is None
    chooses = keys.flag("use_dsa", True) if says else None
    whole = _FULL if chooses is False else _CHOOSING
    if found is None:
        slides = keys.flag("use_sliding_window", True)
        return tuple(
            whole if not slides or layer < 2 or layer % 4 == 1 else _SLIDING for layer in range(layers)
        )
    return tuple(kind if kind == _SLIDING or chooses is None else whole for kind in found)


def _of_windows(keys: Keys, layers: int) -> tuple[int, LatentAttention]:
    """The query heads and the latent attention of layers with windows: the sizes of the first one that has
    its own, or those with names of their own.
    """
    sizes = (*_OF_WINDOWS, "qk_rope_head_dim")
    of_layers, ends = keys.table("per_layer_config"), {name: keys.raw("swa_" + name) for name in sizes}
    own = Keys({name: value for name, value in ends.items() if value is not None}, "config.json: swa")
    own = own.over(_OF_WINDOWS)
    if of_layers is not None:  # of what they leave out, the sizes of other layers hold
        first = next((str(at) for at in range(layers) if isinstance(of_layers.raw(str(at)), Mapping)), "0")
        own = of_layers.table(first) or Keys({}, "config.json: per_layer_config")
        own = own.over(_DEFAULTS | _OF_OTHERS | {name: keys.raw(name) for name in sizes if keys.has(name)})
    nope = own.integer("qk_nope_head_dim", 1, _MOST)
    rope = own.integer("qk_rope_head_dim", 2, _MOST, own.integer("head_dim", 2, _MOST) - nope)
    latent = LatentAttention(
        own.integer("kv_lora_rank", 1, _MOST), nope, rope, own.integer("v_head_dim", 1, _MOST),
        own.integer("q_lora_rank", 1, _MOST),
    )  # fmt: skip
    return own.integer("num_attention_heads", 1, _MOST), latent


def _scaled(kind: LatentAttention, width: int, eps: float) -> LatentAttention:
    """With latents multiplied by the roots of the width over their ranks, and a normed key for rope."""
    ranks = kind.query_rank or width, kind.rank
    return replace(
        kind, scales=((width / ranks[0]) ** 0.5, (width / ranks[1]) ** 0.5), key_norm=True, norm_eps=eps
    )


def _rope(keys: Keys, kind: str, latent: LatentAttention, base: float, name: str) -> RopeConfig:
    """That of one kind of layers, all of the part of heads that has rope."""
    table = keys.table("rope_parameters") or keys.table("rope_scaling")
    own = None if table is None else table.table(kind) if isinstance(table.raw(kind), Mapping) else table
    read: dict[str, Any] = {"rope_theta": keys.number(name, 1.0, 1e12, base)}
    if own is not None:
        read["rope_parameters"] = {
            key: value for key, value in own.source.items() if key != "partial_rotary_factor"
        }
    left_out = ("partial_rotary_factor", "rope_scaling", "rope_parameters", "rope_theta")
    others = {key: value for key, value in keys.source.items() if key not in left_out}
    keys = Keys(others | read, "config.json")
    return rope_from_hf(keys, latent.rope_dim, interleaved=True, layer_type=kind)


def _experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    step = keys.raw("moe_layer_freq")
    after = dense_first(keys, layers, 1)
    if kinds is not None:
        sparse = [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    elif isinstance(step, list):
        flags = keys.integers("moe_layer_freq", 0, MAX_LAYERS)
        sparse = [layer for layer in after if layer < len(flags) and flags[layer]]
    else:
        every = keys.integer("moe_layer_freq", 1, MAX_LAYERS, 1)
        sparse = [layer for layer in after if layer % every == 0]
    width = keys.integer("moe_shared_expert_intermediate_size", 1, 1 << 22, 1536)
    width = keys.integer("shared_experts_intermediate_size", 1, 1 << 22, width)
    groups: dict[str, Any] = hf_groups(keys)
    return hf_experts(
        keys, sparse, count="n_routed_experts", used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, 1 << 22, 1536),
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10, 1),
        **by_sigmoid(keys, keys.number("routed_scaling_factor", 0.0, 1e6, 1.0)), **groups,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`dots3note`, whose last layer may be that of multi-token prediction. What folders multiply latents by
    is in the weights of their norms.
    """
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    heads = each_layer(keys, "attention.head_count", 1, _MOST, layers)
    keys = keys.replaced("block_count", layers).replaced("attention.head_count", max(heads))
    own = {name: f"{name}_swa" for name in _SIZES_OF_WINDOWS}
    local, sliding = gguf_latent(keys.renamed(**own).renamed(**{"rope.freq_base": "rope.freq_base_swa"}))
    keys, whole = gguf_latent(keys)
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "dots3note", interleaved=True, handled=GGUF_EXPERT_KEYS
    )
    whole, sliding = (replace(kind, key_norm=True, norm_eps=shape["norm_eps"]) for kind in (whole, sliding))
    windows = gguf_windows(keys, layers, keys.integer("attention.sliding_window", 1, MAX_CONTEXT), 0)
    latents = tuple(sliding if window else whole for window in windows)
    config = ModelConfig(
        **shape | cache_shape(whole), layer_latents=latents, windows=windows, layer_queries=heads,
        rope_local=rope_from_gguf(local, sliding.rope_dim, tensors, interleaved=True), output_gate="head",
        layer_heads=tuple((1, int(cache_shape(latent)["head_dim"])) for latent in latents),
        experts=gguf_experts(keys, shape, normalise=False, scores="sigmoid"),
    )  # fmt: skip
    choosing = frozenset(layer for layer, window in enumerate(windows) if not window)
    if not choosing:
        return config
    # llama.cpp rotates halves of an indexer's queries and keys, unlike transformers.
    found = gguf_indexer(keys, config, choosing, interleaved=False, choosing=choosing)
    return replace(config, indexer=found)


DOTS_3 = Architecture(
    ("dots3note",),
    ("Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration", "Dots3NoteTextForCausalLM"), from_hf,
    from_gguf, HF_NAMES, GGUF_NAMES,
    prefixes=("", "-model.language_model.", "-"),
)  # fmt: skip
