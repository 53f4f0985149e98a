"""A.X K1: DeepSeek V3 with a norm after the experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import HF_NAMES as DEEPSEEK_NAMES
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS, hf_layer_types
from engine.models.headers.experts import hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import hf_latent_decoder
from engine.models.names import TensorNames
from engine.tensors import RawTensor

PUBLISHED = replace(DEEPSEEK_NAMES, mlp_post="post_mlp_layernorm")
HF_NAMES = replace(DEEPSEEK_NAMES, mlp_post="mlp.post_mlp_layernorm")
_DEFAULTS = {
    "n_routed_experts": 192, "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`AXK1ForCausalLM`; its authors' files have no bias for the choice of experts."""
    keys = keys.over(_DEFAULTS)
    shape: dict[str, Any] = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), interleaved=keys.flag("rope_interleave", True),
        max_position_embeddings=32768,
    )  # fmt: skip
    layers, width = shape["layers"], keys.integer("moe_intermediate_size", 1, 1 << 22)
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 1)
    step = keys.integer("moe_layer_freq", 1, MAX_LAYERS, 1)
    sparse = (
        [layer >= first and layer % step == 0 for layer in range(layers)]
        if kinds is None
        else [kind == "sparse" for kind in kinds]
    )
    experts = hf_experts(
        keys, [layer for layer in range(layers) if sparse[layer]], count="n_routed_experts",
        used="num_experts_per_tok", width=width, normalise=keys.flag("norm_topk_prob", True),
        scores="sigmoid", corrected=None, normed=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.5),
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10), **hf_groups(keys, 8, 4),
    )  # fmt: skip
    return ModelConfig(**shape, experts=experts)


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The name of the norm in the original files, which have it in every layer, or in transformers'."""
    at = "." + HF_NAMES.mlp_post + ".weight"
    inside = any(name.endswith(at) for name in tensors)
    return names if inside else replace(names, mlp_post=PUBLISHED.mlp_post)


A_X_K1 = Architecture((), ("AXK1ForCausalLM",), from_hf, None, HF_NAMES, None, adapt=adapted)
