"""Granite 3: Llama with multipliers on embeddings, attention, residuals and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import gguf_decoder, hf_decoder
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_SMALLEST, _LARGEST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`GraniteForCausalLM`."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    return ModelConfig(**hf_decoder(keys, bias=bias, mlp_bias=mlp_bias), **hf_multipliers(keys))


def hf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of config.json."""
    return {
        "embed_scale": keys.number("embedding_multiplier", _SMALLEST, _LARGEST, 1.0),
        "residual_scale": keys.number("residual_multiplier", _SMALLEST, _LARGEST, 1.0),
        "attention_scale": keys.number("attention_multiplier", _SMALLEST, _LARGEST, 1.0),
        "logit_scale": 1 / keys.number("logits_scaling", _SMALLEST, _LARGEST, 1.0),
    }


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granite`, whose logits are divided by `logit_scale`."""
    handled = ("attention.scale", "logit_scale", "embedding_scale", "residual_scale")
    return ModelConfig(
        **gguf_decoder(keys, tensors, "granite", interleaved=True, handled=handled), **gguf_multipliers(keys)
    )


def gguf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of GGUF metadata; 0 for none."""
    return {
        "embed_scale": keys.number("embedding_scale", 0.0, _LARGEST, 0.0) or 1.0,
        "residual_scale": keys.number("residual_scale", 0.0, _LARGEST, 0.0) or 1.0,
        "attention_scale": keys.number("attention.scale", 0.0, _LARGEST, 0.0),
        "logit_scale": 1 / (keys.number("logit_scale", 0.0, _LARGEST, 0.0) or 1.0),
    }


GRANITE = Architecture(
    ("granite",), ("GraniteForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
