"""Nemotron (Minitron): layer norms plus 1, rope on half of a head, the square of relu."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`NemotronForCausalLM`."""
    shape = hf_decoder(
        keys.over({"norm_eps": 1e-5}), bias=keys.flag("attention_bias", False),
        mlp_bias=keys.flag("mlp_bias", False), share=0.5, activation="relu2", norm_eps="norm_eps",
        max_position_embeddings=4096,
    )  # fmt: skip
    return ModelConfig(**shape, gated=False, norm="layer", norm_bias=True, norm_offset=1.0)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`nemotron`."""
    shape = gguf_decoder(keys, tensors, "nemotron", layer_norm=True)
    return ModelConfig(**shape, gated=False, norm="layer", norm_bias=None, activation="relu2")


NEMOTRON = Architecture(("nemotron",), ("NemotronForCausalLM",), from_hf, from_gguf, HF, GGUF)
