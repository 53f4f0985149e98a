"""Trinity (AFMoE): norms before and after each half of a block, windows in three of four layers and no rope
in the fourth, gated attention, and experts after dense first layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_decoder,
    gguf_windows,
    hf_decoder,
    hf_sliding,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, SHARING
from engine.tensors import RawTensor

HF_NAMES = replace(
    SHARING, output_gate="self_attn.gate_proj", attention_post="post_attention_layernorm",
    mlp_norm="pre_mlp_layernorm", mlp_post="post_mlp_layernorm", router="mlp.router.gate",
    correction="mlp.expert_bias",
)  # fmt: skip
GGUF_NAMES = replace(GGUF, output_gate="attn_gate")
_STEP = 4


def from_hf(keys: Keys) -> ModelConfig:
    """`AfmoeForCausalLM`."""
    keys = keys.over({"num_experts_per_tok": 6, "moe_intermediate_size": 1408, "num_shared_experts": 2})
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=16384,
    )  # fmt: skip
    layers, width = shape["layers"], keys.integer("moe_intermediate_size", 1, 1 << 22)
    first = min(keys.integer("num_dense_layers", 0, MAX_LAYERS, 1), layers)
    experts = hf_experts(
        keys.over({count: 64}), range(first, layers), count=count, used="num_experts_per_tok", width=width,
        normalise=True, scores="sigmoid", scale=keys.number("route_scale", 0.0, 1e6, 1.0), corrected=True,
        shared_width=width * keys.integer("num_shared_experts", 0, 1 << 10),
    )  # fmt: skip
    step = keys.integer("global_attn_every_n_layers", 1, MAX_LAYERS, _STEP)
    scaled = keys.flag("mup_enabled", False)
    return _config(shape, hf_sliding(keys, layers, 1024, step), experts, scaled)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`afmoe`, whose files do not say that embeddings are scaled."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "afmoe", handled=GGUF_EXPERT_KEYS)
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    experts = gguf_experts(keys, shape, normalise=False, scores="sigmoid")
    return _config(shape, gguf_windows(keys, shape["layers"], window, _STEP), experts, True)


def _config(
    shape: dict[str, Any], windows: tuple[int, ...], experts: Experts | None, scaled: bool
) -> ModelConfig:
    return ModelConfig(
        **shape, placement="both", qk_norm="head", windows=windows, output_gate="row", experts=experts,
        nope_layers=frozenset(
            layer for layer in range(shape["layers"]) if not windows or not windows[layer]
        ),
        embed_scale=shape["width"] ** 0.5 if scaled else 1.0,
    )  # fmt: skip


TRINITY = Architecture(("afmoe",), ("AfmoeForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
