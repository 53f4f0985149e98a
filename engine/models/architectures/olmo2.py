"""OLMo 2: norms after each half of a block instead of before, and over all queries and all keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = replace(
    HF,
    attention_norm="",
    mlp_norm="",
    attention_post="post_attention_layernorm",
    mlp_post="post_feedforward_layernorm",
)


def from_hf(keys: Keys) -> ModelConfig:
    """`Olmo2ForCausalLM`."""
    shape = hf_shape(keys, rms_norm_eps=1e-5)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = keys.flag("attention_bias", False)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=False,
        placement="after",
        query_key_norm="row",
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`olmo2`."""
    shape = gguf_shape(keys, tensors, "olmo2")
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False)
    return ModelConfig(**shape, rope=rope, placement="after", query_key_norm="row")


OLMO2 = Architecture(("olmo2",), ("Olmo2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
