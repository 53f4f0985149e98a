"""Granite 3: Llama with multipliers on embeddings, attention, residual additions and logits."""

from __future__ import annotations

from collections.abc import Mapping

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

LEAST, MOST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`GraniteForCausalLM`."""
    shape = hf_shape(keys)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = keys.flag("attention_bias", False)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=keys.flag("mlp_bias", False),
        embed_scale=keys.number("embedding_multiplier", LEAST, MOST, 1.0),
        residual_scale=keys.number("residual_multiplier", LEAST, MOST, 1.0),
        attention_scale=keys.number("attention_multiplier", LEAST, MOST, 1.0),
        logit_scale=1 / keys.number("logits_scaling", LEAST, MOST, 1.0),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granite`; its logits are divided by `logit_scale`."""
    shape = gguf_shape(
        keys,
        tensors,
        "granite",
        handled=("attention.scale", "logit_scale", "embedding_scale", "residual_scale"),
    )
    return ModelConfig(
        **shape,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True),
        embed_scale=keys.number("embedding_scale", 0.0, MOST, 0.0) or 1.0,
        residual_scale=keys.number("residual_scale", 0.0, MOST, 0.0) or 1.0,
        attention_scale=keys.number("attention.scale", 0.0, MOST, 0.0),
        logit_scale=1 / (keys.number("logit_scale", 0.0, MOST, 0.0) or 1.0),
    )


GRANITE = Architecture(("granite",), ("GraniteForCausalLM",), from_hf, from_gguf, HF, GGUF, turned_rows=True)
