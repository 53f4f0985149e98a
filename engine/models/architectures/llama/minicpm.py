"""MiniCPM (arXiv 2404.06395): Llama with embeddings, residuals and logits scaled by depth and width."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_DEPTH, _EMBED, _BASE_WIDTH = 1.4, 12.0, 256
"""The values of the first release, for GGUF files that do not give them."""
_SMALLEST, _LARGEST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniCPMForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), tie_word_embeddings=True)
    return ModelConfig(
        **shape,
        embed_scale=keys.number("scale_emb", _SMALLEST, _LARGEST, 1.0),
        residual_scale=keys.number("scale_depth", _SMALLEST, _LARGEST, 1.0) / math.sqrt(shape["layers"]),
        logit_scale=keys.number("dim_model_base", 1, 1 << 20, 1) / shape["width"],
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minicpm`, whose logits are divided by `logit_scale`."""
    handled = ("logit_scale", "embedding_scale", "residual_scale")
    shape = gguf_decoder(keys, tensors, "minicpm", interleaved=True, handled=handled)
    return ModelConfig(
        **shape,
        embed_scale=keys.number("embedding_scale", 0.0, _LARGEST, 0.0) or _EMBED,
        residual_scale=keys.number("residual_scale", 0.0, _LARGEST, 0.0)
        or _DEPTH / math.sqrt(shape["layers"]),
        logit_scale=1 / (keys.number("logit_scale", 0.0, _LARGEST, 0.0) or shape["width"] / _BASE_WIDTH),
    )


MINICPM = Architecture(
    ("minicpm",), ("MiniCPMForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
