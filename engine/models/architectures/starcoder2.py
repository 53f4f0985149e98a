"""StarCoder2: layer norms, biases everywhere, a plain feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape, sliding
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = replace(HF, gate="", up="mlp.c_fc", down="mlp.c_proj")
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`Starcoder2ForCausalLM`."""
    shape = hf_shape(keys, num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True)
    shape["norm_eps"] = keys.number("norm_epsilon", 0.0, 1.0, 1e-5)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = keys.flag("use_bias", True)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        activation=hf_activation(keys, default="gelu_pytorch_tanh"),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        windows=sliding(keys, shape["layers"]),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`starcoder2`."""
    shape = gguf_shape(keys, tensors, "starcoder2", layer_norm=True)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        activation="gelu_tanh",
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False),
        windows=sliding(keys, shape["layers"], "attention.sliding_window"),
    )


STARCODER2 = Architecture(("starcoder2",), ("Starcoder2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
