"""EXAONE 3 and 3.5: Llama under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.ln_f", layer="transformer.h.{}.", attention_norm="ln_1",
    query="attn.attention.q_proj", key="attn.attention.k_proj", value="attn.attention.v_proj",
    output="attn.attention.out_proj", mlp_norm="ln_2", gate="mlp.c_fc_0", up="mlp.c_fc_1", down="mlp.c_proj",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`ExaoneForCausalLM`, which transformers 5 calls `LlamaForCausalLM` of the type "exaone"."""
    keys = keys.renamed(
        num_hidden_layers="num_layers", rms_norm_eps="layer_norm_epsilon", hidden_act="activation_function"
    )
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    keys = keys if keys.has("num_key_value_heads") else keys.over({"num_key_value_heads": 8})
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=mlp_bias, base=500_000.0, rms_norm_eps=1e-5, max_position_embeddings=4096
    )
    return ModelConfig(**shape)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`exaone`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "exaone"))


EXAONE_3 = Architecture(("exaone",), ("ExaoneForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
