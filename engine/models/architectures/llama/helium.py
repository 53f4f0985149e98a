"""Helium: Llama with interleaved rope. Its GGUF files are Llama's."""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import HF


def from_hf(keys: Keys) -> ModelConfig:
    """`HeliumForCausalLM`."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False), base=1e5,
        interleaved=True,
        rms_norm_eps=1e-8, max_position_embeddings=4096, head_dim=128,
        num_key_value_heads=keys.raw("num_attention_heads") if keys.has("num_key_value_heads") else 20,
    )  # fmt: skip
    return ModelConfig(**shape | {"output_bias": False})


HELIUM = Architecture((), ("HeliumForCausalLM",), from_hf, None, HF, None)
