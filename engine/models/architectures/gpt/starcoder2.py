"""StarCoder2: layer norms, biases everywhere, a plain feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder, hf_windows
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(HF, gate="", up="mlp.c_fc", down="mlp.c_proj")
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`Starcoder2ForCausalLM`."""
    bias = keys.flag("use_bias", True)
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=bias, activation="gelu_pytorch_tanh", norm_eps="norm_epsilon",
        norm_epsilon=1e-5, num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    return ModelConfig(**shape, **_QUIRKS, windows=hf_windows(keys, shape["layers"]))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`starcoder2`."""
    shape = gguf_decoder(keys, tensors, "starcoder2", layer_norm=True)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        activation="gelu_tanh",
        windows=hf_windows(keys, shape["layers"], "attention.sliding_window"),
    )


STARCODER2 = Architecture(("starcoder2",), ("Starcoder2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
