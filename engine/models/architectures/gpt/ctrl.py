"""CTRL (arXiv 1909.05858): GPT-2 with separate matrices, relu, and a table of positions that is computed."""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_shape
from engine.models.headers.keys import Keys
from engine.models.names import HF

_AT = "multi_head_attention."
HF_NAMES = replace(
    HF, embed="transformer.w", norm="transformer.layernorm", layer="transformer.h.{}.",
    attention_norm="layernorm1", query=_AT + "Wq", key=_AT + "Wk", value=_AT + "Wv", output=_AT + "dense",
    mlp_norm="layernorm2", gate="", up="ffn.0", down="ffn.2",
)  # fmt: skip
_NAMES = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions", "intermediate_size": "dff",
}  # fmt: skip
_DEFAULTS = {
    "vocab_size": 246_534, "n_embd": 1280, "n_layer": 48, "n_head": 16, "n_positions": 256, "dff": 8192,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`CTRLLMHeadModel`."""
    keys = keys.over(_DEFAULTS).renamed(**_NAMES).without("num_key_value_heads", "head_dim")
    # The table is computed as long as this says.
    keys.integer("max_position_embeddings", 1, 1 << 14)
    shape = hf_shape(keys, "layer_norm_epsilon", layer_norm_epsilon=1e-6, tie_word_embeddings=True)
    return ModelConfig(
        **shape, activation="relu", gated=False, rope=None, sinusoids="open",
        embed_scale=shape["width"] ** 0.5, attention_bias=True, output_bias=True, mlp_bias=True,
        head_bias=True, norm="layer", norm_bias=True,
    )  # fmt: skip


CTRL = Architecture((), ("CTRLLMHeadModel",), from_hf, None, HF_NAMES, None, prefixes=("", "-"))
