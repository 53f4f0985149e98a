"""Hunyuan 3: experts chosen by sigmoids and a bias, a shared one, and qk norm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder, hf_layer_types
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import SHARING, TensorNames, with_shared

HF_NAMES = replace(SHARING, correction="mlp.e_score_correction_bias")
PUBLISHED = replace(
    with_shared(SHARING, "mlp.shared_mlp"), router="mlp.router.gate", correction="mlp.expert_bias"
)


def from_hf(keys: Keys) -> ModelConfig:
    """`HYV3ForCausalLM`."""
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    keys = keys.over(
        {
            count: 192, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "num_key_value_heads": 8,
            "num_shared_experts": 1,
        }
    )  # fmt: skip
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False),
        base=11_158_840.0, rms_norm_eps=1e-5, head_dim=128, max_position_embeddings=131072,
    )  # fmt: skip
    layers, width = shape["layers"], keys.integer("moe_intermediate_size", 1, 1 << 22)
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    experts = hf_experts(
        keys, [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer)],
        count=count, used="num_experts_per_tok", width=width, normalise=True, scores="sigmoid",
        scale=keys.number("router_scaling_factor", 0.0, 1e6, 2.826), corrected=True,
        shared_width=width * keys.integer("num_shared_experts", 0, 1 << 10),
    )  # fmt: skip
    return ModelConfig(**shape, qk_norm="head", experts=experts)


def adapted(names: TensorNames, tensors: Iterable[str]) -> TensorNames:
    """The makers' names, where the file has them."""
    return PUBLISHED if any(".router.gate." in name for name in tensors) else names


HUNYUAN_3 = Architecture((), ("HYV3ForCausalLM",), from_hf, None, HF_NAMES, None, adapt=adapted)
