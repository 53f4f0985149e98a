"""OLMoE (arXiv 2409.02060): Llama with experts in every layer and qk norm over whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, MIXTURE
from engine.tensors import RawTensor
from engine.words import _


def from_hf(keys: Keys, base: float = 10000.0) -> ModelConfig:
    """`OlmoeForCausalLM`."""
    if keys.raw("clip_qkv") is not None:
        raise UnsupportedModel(
            _(
                "The model clips its queries, keys and values (clip_qkv), which is not supported. Choose "
                "another model."
            )
        )
    count = "num_experts" if keys.raw("num_experts") is not None else "num_local_experts"
    keys = keys.over({count: 64, "num_experts_per_tok": 8})
    shape = hf_decoder(
        keys,
        bias=keys.flag("attention_bias", False),
        base=base,
        rms_norm_eps=1e-5,
        max_position_embeddings=4096,
    )
    experts = hf_experts(
        keys,
        range(shape["layers"]),
        count=count,
        used="num_experts_per_tok",
        width=shape["ffn_width"],
        normalise=keys.flag("norm_topk_prob", False),
    )
    return ModelConfig(**shape, qk_norm="row", experts=experts)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`olmoe`."""
    shape = gguf_decoder(keys, tensors, "olmoe", handled=("expert_count",))
    return ModelConfig(**shape, qk_norm="row", experts=gguf_experts(keys, shape, normalise=False))


def from_hf_flex(keys: Keys) -> ModelConfig:
    """`FlexOlmoForCausalLM`: the same with norms after each half of a block instead of before."""
    keys = keys.over({"num_experts_per_tok": 5, "rms_norm_eps": 1e-6})
    count = "num_experts" if keys.raw("num_experts") is not None else "num_local_experts"
    return replace(from_hf(keys.over({count: 7}), base=500_000.0), placement="after")


OLMOE = Architecture(("olmoe",), ("OlmoeForCausalLM",), from_hf, from_gguf, MIXTURE, GGUF)
FLEX_OLMO = Architecture(
    (), ("FlexOlmoForCausalLM",), from_hf_flex, None,
    replace(
        MIXTURE, attention_norm="", mlp_norm="", attention_post="post_attention_layernorm",
        mlp_post="post_feedforward_layernorm",
    ),
    None,
)  # fmt: skip
