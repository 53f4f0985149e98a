"""Arcee (AFM): Llama with the square of relu in a plain feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`ArceeForCausalLM`."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False),
        activation="relu2", rms_norm_eps=1e-5, max_position_embeddings=4096,
    )  # fmt: skip
    return ModelConfig(**shape, gated=False)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`arcee`."""
    shape = gguf_decoder(keys, tensors, "arcee", interleaved=True)
    return ModelConfig(**shape, gated=False, activation="relu2")


ARCEE = Architecture(("arcee",), ("ArceeForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True)
