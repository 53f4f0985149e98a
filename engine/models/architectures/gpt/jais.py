"""Jais (arXiv 2308.16149): ALiBi, layer norms, gated feed-forward parts, scores divided by a head's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.gpt.gpt2 import HF_NAMES as GPT_2_NAMES
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF
from engine.tensors import RawTensor

HF_NAMES = replace(GPT_2_NAMES, gate="mlp.c_fc2")
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "rope": None}
_MOST = 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`JAISLMHeadModel`, under the original keys of both of its versions."""
    needed = {"activation_function": "swiglu", "position_embedding_type": "alibi"}
    for name, usual in {**needed, "mup_scale_qk_dot_prod": True}.items():
        if (found := keys.raw(name)) != usual and (found is not None or name in needed):
            raise unsupported(name, found)
    keys = keys.renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        max_position_embeddings="n_positions", intermediate_size="n_inner",
    )  # fmt: skip
    shape = hf_shape(
        keys.without("num_key_value_heads", "head_dim"), "layer_norm_epsilon", layer_norm_epsilon=1e-5,
        tie_word_embeddings=True,
    )  # fmt: skip
    keys = keys.renamed(embeddings_scale="mup_embeddings_scale")
    logits = keys.number("width_scale", 0.0, _MOST, 1.0)
    for name in ("mup_output_alpha", "mup_width_scale"):
        logits *= keys.number(name, 0.0, _MOST, 1.0)
    return ModelConfig(
        **shape, **_QUIRKS, attention_bias=True, output_bias=True, mlp_bias=True,
        attention_scale=1 / shape["head_dim"], slopes=alibi_slopes(shape["heads"], 8.0), logit_scale=logits,
        embed_scale=keys.number("embeddings_scale", 0.0, _MOST, 1.0),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`jais`, whose embeddings and head are scaled in the file."""
    shape = gguf_shape(keys, tensors, "jais", layer_norm=True, handled=("attention.max_alibi_bias",))
    most = keys.number("attention.max_alibi_bias", 0.0, _MOST, 8.0)
    slopes = alibi_slopes(shape["heads"], most)
    return ModelConfig(**shape, **_QUIRKS, attention_scale=1 / shape["head_dim"], slopes=slopes)


JAIS = Architecture(
    ("jais",), ("JAISLMHeadModel",), from_hf, from_gguf, HF_NAMES, GGUF, gguf_scaled=True
)  # fmt: skip
