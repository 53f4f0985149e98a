"""GLM-4.5 to 4.7, Solar Open and dots.llm1: experts chosen as DeepSeek V3 chooses them (arXiv
2412.19437), and a shared one, after dense first layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, gguf_decoder, hf_decoder, layer_kinds
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, SHARING
from engine.tensors import RawTensor

GGUF_GLM = replace(GGUF, mlp_norm="post_attention_norm", attention_post="")


def from_hf(keys: Keys) -> ModelConfig:
    """`Glm4MoeForCausalLM`."""
    defaults = {
        "num_experts_per_tok": 8, "n_routed_experts": 128, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "moe_intermediate_size": 1408, "num_key_value_heads": 8, "norm_topk_prob": True,
    }  # fmt: skip
    keys = keys.over(defaults)
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), share=0.5, rms_norm_eps=1e-5,
        max_position_embeddings=131072,
    )  # fmt: skip
    return ModelConfig(
        **shape | {"output_bias": False},
        qk_norm="head" if keys.flag("use_qk_norm", False) else "none",
        experts=sigmoid_experts(keys, shape["layers"]),
    )


def sigmoid_experts(keys: Keys, layers: int) -> Experts | None:
    """As DeepSeek V3's config.json has them."""
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    return hf_experts(
        keys,
        range(min(keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 0), layers), layers),
        count="n_routed_experts",
        used="num_experts_per_tok",
        width=width,
        normalise=keys.flag("norm_topk_prob", False),
        scores="sigmoid",
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        corrected=True,
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10, 0),
        **hf_groups(keys),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`glm4moe`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys = keys.replaced("block_count", layers)
    shape = gguf_decoder(keys, tensors, "glm4moe", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape, normalise=False, scores="sigmoid")
    normed = "blk.0.attn_q_norm.weight" in tensors
    return ModelConfig(**shape, qk_norm="head" if normed else "none", experts=experts)


def from_hf_dots(keys: Keys) -> ModelConfig:
    """`Dots1ForCausalLM`."""
    absent: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 32}
    shape: dict[str, Any] = hf_decoder(keys, bias=keys.flag("attention_bias", False), **absent)
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 4096)
    first, kinds = keys.integer("max_window_layers", 0, MAX_LAYERS, 62), layer_kinds(keys, shape["layers"])
    slides = [
        kinds[layer] == "sliding_attention" if kinds else layer >= first for layer in range(shape["layers"])
    ]
    return ModelConfig(
        **shape,
        qk_norm="head",
        windows=tuple(window if slide else 0 for slide in slides) if window and any(slides) else (),
        experts=sigmoid_experts(keys, shape["layers"]),
    )


def from_gguf_dots(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`dots1`."""
    shape = gguf_decoder(keys, tensors, "dots1", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape, normalise=False, scores="sigmoid")
    return ModelConfig(**shape, qk_norm="head", experts=experts)


def from_hf_solar(keys: Keys) -> ModelConfig:
    """`SolarOpenForCausalLM`, whose GGUF files are `glm4moe`."""
    defaults = {
        "num_experts_per_tok": 8, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": True,
        "moe_intermediate_size": 1280, "num_key_value_heads": 8, "intermediate_size": 1,
        "first_k_dense_replace": 0,
    }  # fmt: skip
    count = "n_routed_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    keys = keys.renamed(n_routed_experts=count).over(defaults)
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), base=1e6, share=1.0, rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=131072,
    )  # fmt: skip
    return ModelConfig(**shape | {"output_bias": False}, experts=sigmoid_experts(keys, shape["layers"]))


GLM_4_MIXTURE = Architecture(
    ("glm4moe",), ("Glm4MoeForCausalLM",), from_hf, from_gguf, SHARING, GGUF_GLM, prefixes=("", "-")
)
SOLAR_OPEN = Architecture((), ("SolarOpenForCausalLM",), from_hf_solar, None, SHARING, None)
DOTS_1 = Architecture(("dots1",), ("Dots1ForCausalLM",), from_hf_dots, from_gguf_dots, SHARING, GGUF)
