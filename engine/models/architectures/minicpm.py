"""MiniCPM: Llama with embeddings, residual additions and logits scaled by the depth and width it was tuned
at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

_DEPTH, _EMBED, _BASE_WIDTH = 1.4, 12.0, 256
"""What files that do not say mean (MiniCPM's first release)."""
_LEAST, _MOST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniCPMForCausalLM`."""
    shape = hf_shape(keys, tie_word_embeddings=True)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = keys.flag("attention_bias", False)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=False,
        embed_scale=keys.number("scale_emb", _LEAST, _MOST, 1.0),
        residual_scale=keys.number("scale_depth", _LEAST, _MOST, 1.0) / math.sqrt(shape["layers"]),
        logit_scale=keys.number("dim_model_base", 1, 1 << 20, 1) / shape["width"],
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minicpm`; its logits are divided by `logit_scale`."""
    shape = gguf_shape(keys, tensors, "minicpm", handled=("logit_scale", "embedding_scale", "residual_scale"))
    return ModelConfig(
        **shape,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True),
        embed_scale=keys.number("embedding_scale", 0.0, _MOST, 0.0) or _EMBED,
        residual_scale=keys.number("residual_scale", 0.0, _MOST, 0.0) or _DEPTH / math.sqrt(shape["layers"]),
        logit_scale=1 / (keys.number("logit_scale", 0.0, _MOST, 0.0) or shape["width"] / _BASE_WIDTH),
    )


MINICPM = Architecture(("minicpm",), ("MiniCPMForCausalLM",), from_hf, from_gguf, HF, GGUF, turned_rows=True)
