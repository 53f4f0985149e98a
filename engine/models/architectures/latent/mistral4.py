"""Mistral 4: DeepSeek's latent attention, whose queries are scaled by their positions, and experts chosen by
softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import GGUF_NAMES, HF_NAMES, dense_first
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, gguf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, gguf_scale, hf_latent_decoder
from engine.models.layers.positions.rope import RopeConfig
from engine.tensors import RawTensor

_DEFAULTS = {
    "n_routed_experts": 128, "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_experts_per_tok": 4,
}  # fmt: skip
_ROPE = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0, "original_max_position_embeddings": 8192,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`Mistral4ForCausalLM`."""
    if keys.raw("rope_parameters") is None and keys.raw("rope_scaling") is None:
        keys = keys.replaced("rope_parameters", _ROPE)
    keys = keys.over(_DEFAULTS).renamed(n_routed_experts="num_local_experts")
    # The part of a head with rope has its own size.
    table = keys.table("rope_parameters")
    if table is not None:
        keys = keys.replaced("rope_parameters", table.without("partial_rotary_factor").source)
    shape: dict[str, Any] = hf_latent_decoder(
        keys.without("partial_rotary_factor"), (256, 1024), (64, 64, 128),
        interleaved=keys.flag("rope_interleave", True), max_position_embeddings=1 << 20,
    )  # fmt: skip
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling") or keys
    beta = scaling.number("llama_4_scaling_beta", 0.0, 1e3, 0.0)
    length = scaling.integer("original_max_position_embeddings", 1, MAX_CONTEXT, 8192)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    rope: RopeConfig = shape["rope"]
    return ModelConfig(
        **shape | {"rope": replace(rope, query_beta=beta, query_length=length) if beta else rope},
        experts=hf_experts(
            keys,
            dense_first(keys, shape["layers"], 0),
            count="n_routed_experts",
            used="num_experts_per_tok",
            width=width,
            normalise=keys.flag("norm_topk_prob", True),
            scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
            shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10),
            **hf_groups(keys),
        ),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mistral4`."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    keys, kind = gguf_latent(keys.replaced("block_count", layers))
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "mistral4", interleaved=True,
        handled=(*GGUF_EXPERT_KEYS, "attention.temperature_scale"),
    )  # fmt: skip
    rope, scale = gguf_scale(keys, shape["rope"])
    beta = keys.number("attention.temperature_scale", 0.0, 1e3, 0.0)
    original = keys.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, 0)
    length = keys.integer("attention.temperature_length", 0, MAX_CONTEXT, 0) or original or 8192
    rope = replace(rope, query_beta=beta, query_length=length) if beta else rope
    return ModelConfig(
        **shape | cache_shape(kind) | {"rope": rope},
        attention_scale=kind.query_dim**-0.5 * scale,
        experts=gguf_experts(keys, shape, normalise=False),
    )


MISTRAL_4 = Architecture(("mistral4",), ("Mistral4ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
