"""OLMo 2 (arXiv 2501.00656): norms after each half of a block instead of before; qk norm over whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import gguf_decoder, hf_decoder
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF,
    attention_norm="",
    mlp_norm="",
    attention_post="post_attention_layernorm",
    mlp_post="post_feedforward_layernorm",
)


def from_hf(keys: Keys) -> ModelConfig:
    """`Olmo2ForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5)
    return ModelConfig(**shape, placement="after", qk_norm="row")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`olmo2`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "olmo2"), placement="after", qk_norm="row")


OLMO2 = Architecture(("olmo2",), ("Olmo2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
