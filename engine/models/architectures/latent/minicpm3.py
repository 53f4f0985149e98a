"""MiniCPM 3 (arXiv 2404.06395): MiniCPM with latent attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, hf_latent_decoder
from engine.models.names import GGUF, HF, LATENT_GGUF, LATENT_HF
from engine.tensors import RawTensor

_DEPTH, _EMBED, _BASE_WIDTH = 1.4, 12.0, 256
"""The values of the release; GGUF files do not give any."""
_SMALLEST, _LARGEST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniCPM3ForCausalLM`; a null scale means none."""
    shape = hf_latent_decoder(
        keys, (256, 768), (64, 32, 0), interleaved=False, max_position_embeddings=32768, rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )  # fmt: skip
    depth, base = math.sqrt(shape["layers"]), shape["width"]
    if not _null(keys, "scale_depth"):
        depth = keys.number("scale_depth", _SMALLEST, _LARGEST, _DEPTH)
    if not _null(keys, "dim_model_base"):
        base = keys.integer("dim_model_base", 1, 1 << 20, _BASE_WIDTH)
    return ModelConfig(
        **shape | {"mlp_bias": keys.flag("mlp_bias", False)},
        embed_scale=keys.number("scale_emb", _SMALLEST, _LARGEST, _EMBED),
        residual_scale=depth / math.sqrt(shape["layers"]),
        logit_scale=base / shape["width"],
    )


def _null(keys: Keys, name: str) -> bool:
    return keys.has(name) and keys.raw(name) is None


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minicpm3`."""
    width, heads = (
        keys.integer("embedding_length", 1, 1 << 20),
        keys.integer("attention.head_count", 1, 1 << 14),
    )
    keys, kind = gguf_latent(keys, width // heads)
    shape = gguf_decoder(keys, tensors, "minicpm3")
    return ModelConfig(
        **shape | cache_shape(kind),
        attention_scale=kind.query_dim**-0.5,
        embed_scale=_EMBED,
        residual_scale=_DEPTH / math.sqrt(shape["layers"]),
        logit_scale=_BASE_WIDTH / shape["width"],
    )


MINICPM_3 = Architecture(
    ("minicpm3",), ("MiniCPM3ForCausalLM",), from_hf, from_gguf, replace(HF, latent=LATENT_HF),
    replace(GGUF, latent=LATENT_GGUF),
)  # fmt: skip
