"""Seed-OSS: Llama with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`SeedOssForCausalLM`."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", True), mlp_bias=keys.flag("mlp_bias", False),
        num_key_value_heads=8, head_dim=128, max_position_embeddings=524_288,
    )  # fmt: skip
    return ModelConfig(**shape | {"output_bias": keys.flag("attention_out_bias", False)})


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`seed_oss`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "seed_oss"))


GGUF_NAMES = replace(GGUF, mlp_norm="post_attention_norm", attention_post="")
SEED_OSS = Architecture(("seed_oss",), ("SeedOssForCausalLM",), from_hf, from_gguf, HF, GGUF_NAMES)
