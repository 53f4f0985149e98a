"""Qwen 1: Llama with biases of queries, keys and values, under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.ln_f", layer="transformer.h.{}.", attention_norm="ln_1",
    query_key_value="attn.c_attn", output="attn.c_proj", mlp_norm="ln_2", gate="mlp.w2", up="mlp.w1",
    down="mlp.c_proj",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`QWenLMHeadModel`, whose `intermediate_size` counts gate and up."""
    keys = keys.renamed(
        rms_norm_eps="layer_norm_epsilon", max_position_embeddings="seq_length", rope_theta="rotary_emb_base",
        head_dim="kv_channels",
    )  # fmt: skip
    shape = hf_decoder(
        keys, bias=True, mlp_bias=not keys.flag("no_bias", True), base=10000.0, max_position_embeddings=8192
    )
    return ModelConfig(
        **_halved(shape) | {"kv_heads": shape["heads"], "output_bias": not keys.flag("no_bias", True)}
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen`."""
    return ModelConfig(**_halved(gguf_decoder(keys, tensors, "qwen")))


def _halved(shape: dict[str, Any]) -> dict[str, Any]:
    if shape["ffn_width"] % 2:
        raise BadCheckpoint(
            _(
                "The model's feed-forward width {shape} counts gate and up and should be even; the "
                "file is damaged.",
                shape=shape["ffn_width"],
            )
        )
    return shape | {"ffn_width": shape["ffn_width"] // 2}


QWEN = Architecture(("qwen",), ("QWenLMHeadModel",), from_hf, from_gguf, HF_NAMES, GGUF)
