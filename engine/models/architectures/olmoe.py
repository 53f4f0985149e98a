"""OLMoE (arXiv 2409.02060): Llama with experts in every layer and qk norm over whole rows."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, MIXTURE
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`OlmoeForCausalLM`."""
    if keys.raw("clip_qkv") is not None:
        raise UnsupportedModel(
            "The model clips its queries, keys and values (clip_qkv), which is not supported. Choose another "
            "model."
        )
    count = "num_experts" if keys.raw("num_experts") is not None else "num_local_experts"
    keys = keys.over({count: 64, "num_experts_per_tok": 8})
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5, max_position_embeddings=4096
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


OLMOE = Architecture(("olmoe",), ("OlmoeForCausalLM",), from_hf, from_gguf, MIXTURE, GGUF)
