"""Refact: Llama with ALiBi, and one key/value head whose keys and values are made by one matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_shape
from engine.models.headers.keys import Keys
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.ln_f", layer="transformer.h.{}.", attention_norm="ln_1",
    query="attn.q", key="", value="", key_value="attn.kv", output="attn.c_proj", mlp_norm="ln_2", gate="",
    up="", gate_up="mlp.gate_up_proj", down="mlp.c_proj",
)  # fmt: skip
_STEP = 256
"""The features inside the feed-forward part are the next multiple of this after 8 / 3 of the width."""
_DEFAULTS = {"vocab_size": 49216, "n_embd": 2048, "n_layer": 32, "n_head": 32, "n_positions": 4096}


def from_hf(keys: Keys) -> ModelConfig:
    """`GPTRefactForCausalLM`, under the original keys."""
    keys = keys.over(_DEFAULTS).renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        max_position_embeddings="n_positions",
    )  # fmt: skip
    inner = -(-(8 * keys.integer("hidden_size", 1, 1 << 20) // 3) // _STEP) * _STEP
    shape = hf_shape(
        keys.replaced("intermediate_size", inner).replaced("num_key_value_heads", 1).without("head_dim"),
        "layer_norm_epsilon", layer_norm_epsilon=1e-5,
    )  # fmt: skip
    return ModelConfig(
        **shape, rope=None, slopes=alibi_slopes(shape["heads"]), attention_bias=False, output_bias=False,
        mlp_bias=False,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`refact`."""
    shape = gguf_shape(keys, tensors, "refact")
    return ModelConfig(**shape, rope=None, slopes=alibi_slopes(shape["heads"]))


REFACT = Architecture(("refact",), ("GPTRefactForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
