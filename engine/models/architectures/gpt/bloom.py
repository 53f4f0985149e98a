"""Bloom (arXiv 2211.05100): ALiBi, a layer norm of embeddings, one matrix for queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_shape
from engine.models.headers.keys import Keys
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="transformer.word_embeddings", embed_norm="transformer.word_embeddings_layernorm",
    norm="transformer.ln_f", layer="transformer.h.{}.", query="", key="", value="",
    query_key_value="self_attention.query_key_value", output="self_attention.dense", gate="",
    up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", grouped=True,
)  # fmt: skip
_QUIRKS: dict[str, Any] = {
    "norm": "layer", "norm_bias": True, "embed_norm": True, "gated": False, "activation": "gelu_tanh",
    "rope": None,
}  # fmt: skip
_DEFAULTS = {"vocab_size": 250880, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8}
_CONTEXT = 2048
"""What Bloom was trained on; config.json has it under a name of its own, or not at all."""


def from_hf(keys: Keys) -> ModelConfig:
    """`BloomForCausalLM`."""
    keys = keys.renamed(
        num_hidden_layers="n_layer", num_attention_heads="n_head", hidden_size="n_embed",
        max_position_embeddings="seq_length",
    ).over(_DEFAULTS)  # fmt: skip
    keys = keys.replaced("intermediate_size", 4 * keys.integer("hidden_size", 1, 1 << 20))
    shape = hf_shape(
        keys.without("num_key_value_heads", "head_dim"), "layer_norm_epsilon", layer_norm_epsilon=1e-5,
        max_position_embeddings=_CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip
    kept = keys.flag("apply_residual_connection_post_layernorm", False)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        slopes=alibi_slopes(shape["heads"]),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        placement="kept" if kept else "before",
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bloom`."""
    shape = gguf_shape(keys, tensors, "bloom", layer_norm=True, handled=("attention.max_alibi_bias",))
    return ModelConfig(**shape, **_QUIRKS, slopes=alibi_slopes(shape["heads"]))


BLOOM = Architecture(
    ("bloom",), ("BloomForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, prefixes=("", "-")
)
