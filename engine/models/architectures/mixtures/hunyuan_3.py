"""Hunyuan 3: experts chosen by sigmoids and a bias, a shared one, and qk norm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_LAYERS,
    gguf_decoder,
    gguf_layers_with,
    hf_decoder,
    hf_layer_types,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, SHARING, TensorNames, with_shared
from engine.tensors import RawTensor

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


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hy_v3`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys = keys.replaced("block_count", layers)
    shape = gguf_decoder(keys, tensors, "hy_v3", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(
        keys,
        shape,
        normalise=False,
        scores="sigmoid",
        layers=gguf_layers_with(tensors, "ffn_gate_inp", layers),
    )
    return ModelConfig(**shape, qk_norm="head", experts=experts)


def adapted(names: TensorNames, tensors: Iterable[str]) -> TensorNames:
    """The original names, where the file has them; in GGUF files the bias of the choice is no ".bias"."""
    if any(name.endswith(".exp_probs_b") for name in tensors):
        return replace(names, correction="exp_probs_b")
    if not any(".router.gate." in name for name in tensors):
        return names
    return replace(PUBLISHED, embed=names.embed, norm=names.norm, head=names.head, layer=names.layer)


HUNYUAN_3 = Architecture(("hy_v3",), ("HYV3ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, adapt=adapted)
