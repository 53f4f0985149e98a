"""Orion: Llama with layer norms; and XVERSE, which is Llama by another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_NORMS: dict[str, Any] = {"norm": "layer", "norm_bias": True}


def from_hf(keys: Keys) -> ModelConfig:
    """`OrionForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5)
    return ModelConfig(**shape, **_NORMS)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`orion`, whose layer norms' epsilon has the key of RMS norms in older files."""
    plain = keys.raw("attention.layer_norm_epsilon") is None
    return ModelConfig(**gguf_decoder(keys, tensors, "orion", layer_norm=not plain), **_NORMS)


def xverse_from_hf(keys: Keys) -> ModelConfig:
    """`XverseForCausalLM`."""
    return ModelConfig(**hf_decoder(keys, bias=False))


def xverse_from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`xverse`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "xverse", interleaved=True))


ORION = Architecture(("orion",), ("OrionForCausalLM",), from_hf, from_gguf, HF, GGUF)
XVERSE = Architecture(
    ("xverse",), ("XverseForCausalLM",), xverse_from_hf, xverse_from_gguf, HF, GGUF, interleaved_rows=True
)
