"""Phi-3.5-MoE: layer norms with biases, and two experts for each token, weighed by SparseMixer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder, hf_windows
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, HF, experts_in_mlp, with_experts
from engine.tensors import RawTensor

HF_NAMES = replace(
    with_experts(HF, "block_sparse_moe.experts", "w1", "w3", "w2"), router="block_sparse_moe.gate"
)
_NEARNESS = 0.01
_NORMS: dict[str, Any] = {"norm": "layer", "norm_bias": True}


def from_hf(keys: Keys) -> ModelConfig:
    """`PhimoeForCausalLM`, whose older name is `PhiMoEForCausalLM`."""
    refuse_other(keys, "num_experts_per_tok", 2)
    keys = keys.over({"num_local_experts": 16, "num_experts_per_tok": 2})
    absent: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), base=1e6, rms_norm_eps=1e-5,
        max_position_embeddings=131072, **absent,
    )  # fmt: skip
    return ModelConfig(
        **shape,
        **_NORMS,
        head_bias=keys.flag("lm_head_bias", False),
        windows=hf_windows(keys, shape["layers"]),
        experts=hf_experts(
            keys,
            range(shape["layers"]),
            count="num_local_experts",
            used="num_experts_per_tok",
            width=shape["ffn_width"],
            normalise=False,
            nearness=keys.number("router_jitter_noise", 0.0, 1.0, _NEARNESS),
        ),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`phimoe`, which does not say how near experts must be."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "phimoe", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape, normalise=False, nearness=_NEARNESS)
    windows = hf_windows(keys, shape["layers"], "attention.sliding_window")
    return ModelConfig(**shape, **_NORMS, head_bias=None, windows=windows, experts=experts)


PHI_MIXTURE = Architecture(
    ("phimoe",), ("PhimoeForCausalLM", "PhiMoEForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF,
    adapt=experts_in_mlp,
)  # fmt: skip
