"""OLMo 1 (arXiv 2402.00838): Llama with layer norms that have no weights; some have clipped queries, keys and
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_NORMS: dict[str, Any] = {"norm": "layer", "norm_weights": False}
_EPS = 1e-5


def from_hf(keys: Keys) -> ModelConfig:
    """`OlmoForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    clip = keys.optional("clip_qkv", 0.0, 1e6)
    return ModelConfig(**shape | {"norm_eps": _EPS}, **_NORMS, attention_clip=clip)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`olmo`."""
    shape = gguf_decoder(
        keys, tensors, "olmo", interleaved=True, layer_norm=True, handled=("attention.clamp_kqv",)
    )
    return ModelConfig(**shape, **_NORMS, attention_clip=keys.number("attention.clamp_kqv", 0.0, 1e6, 0.0))


OLMO = Architecture(("olmo",), ("OlmoForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True)
