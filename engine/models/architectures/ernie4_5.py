"""ERNIE 4.5 (dense): Llama with interleaved rope."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import gguf_decoder, hf_decoder
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`Ernie4_5ForCausalLM`."""
    bias = keys.flag("use_bias", False)
    if not keys.has("num_key_value_heads"):
        keys = keys.over({"num_key_value_heads": 2})
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=bias, base=500_000.0, interleaved=True, rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=131_072, tie_word_embeddings=True,
    )  # fmt: skip
    return ModelConfig(**shape)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`ernie4_5`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "ernie4_5", interleaved=True))


ERNIE_4_5 = Architecture(("ernie4_5",), ("Ernie4_5ForCausalLM",), from_hf, from_gguf, HF, GGUF)
