"""Jais 2: Llama with layer norms, biases, and the square of relu in a plain feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`Jais2ForCausalLM`."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", True), mlp_bias=keys.flag("mlp_bias", True),
        activation="relu2",
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5, max_position_embeddings=8192,
    )  # fmt: skip
    return ModelConfig(**shape, **_QUIRKS)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`jais2`."""
    shape = gguf_decoder(keys, tensors, "jais2", layer_norm=True)
    return ModelConfig(**shape | {"activation": "relu2"}, **_QUIRKS)


JAIS_2 = Architecture(("jais2",), ("Jais2ForCausalLM",), from_hf, from_gguf, HF, GGUF)
