"""MPT (of MosaicML): ALiBi, layer norms without biases, one matrix for queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_architecture, hf_shape
from engine.models.headers.keys import Keys
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.norm_f", layer="transformer.blocks.{}.",
    attention_norm="norm_1", query="", key="", value="", query_key_value="attn.Wqkv",
    output="attn.out_proj", mlp_norm="norm_2", gate="", up="ffn.up_proj", down="ffn.down_proj",
)  # fmt: skip
_QUIRKS: dict[str, Any] = {"norm": "layer", "gated": False, "activation": "gelu", "qk_layer_norm": True}
_DEFAULTS = {
    "vocab_size": 50368, "d_model": 2048, "n_layers": 24, "n_heads": 16, "max_seq_len": 2048,
}  # fmt: skip
_MOST = 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`MptForCausalLM`, and `MPTForCausalLM` in the original folders."""
    keys = keys.over(_DEFAULTS).renamed(
        hidden_size="d_model", num_hidden_layers="n_layers", num_attention_heads="n_heads",
        max_position_embeddings="max_seq_len",
    )  # fmt: skip
    width, ratio, most = keys.integer("hidden_size", 1, 1 << 20), 4, 8.0
    attention = keys.table("attn_config") or Keys({}, "config.json: attn_config")
    if hf_architecture(keys.source) == "MPTForCausalLM":  # the other class ignores these
        ratio = keys.integer("expansion_ratio", 1, 64, 4)
        most = attention.number("alibi_bias_max", 0.0, _MOST, 8.0)
    kind = attention.text("attn_type", "multihead_attention")
    if kind != "multihead_attention" or attention.flag("qk_ln", False) or not attention.flag("alibi", True):
        raise UnsupportedModel(
            _(
                "The model's attention is not that of MPT 7B and 30B (attn_config), which is not supported. "
                "Choose another model."
            )
        )
    scale = width**-0.5  # what the original code, unlike transformers, multiplies the logits by
    if keys.raw("logit_scale") != "inv_sqrt_d_model":
        scale = keys.number("logit_scale", 1e-6, 1e6, 1.0)
    shape = hf_shape(
        keys.replaced("intermediate_size", ratio * width).without("num_key_value_heads", "head_dim"),
        "layer_norm_epsilon", layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    return ModelConfig(
        **shape,
        **_QUIRKS,
        rope=None,
        slopes=alibi_slopes(shape["heads"], most),
        attention_scale=attention.optional("softmax_scale", 0.0, _MOST),
        attention_clip=attention.optional("clip_qkv", 0.0, _MOST),
        logit_scale=scale,
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mpt`, where some models have biases, qk norm, or learned positions instead of ALiBi."""
    handled = ("attention.max_alibi_bias", "attention.clamp_kqv")
    shape = gguf_shape(keys, tensors, "mpt", layer_norm=True, handled=handled)
    most = keys.number("attention.max_alibi_bias", 0.0, _MOST, 0.0)
    return ModelConfig(
        **shape,
        **_QUIRKS | {"norm_bias": None},
        rope=None,
        slopes=alibi_slopes(shape["heads"], most) if most else (),
        attention_clip=keys.number("attention.clamp_kqv", 0.0, _MOST, 0.0),
        qk_norm="row" if "blk.0.attn_q_norm.weight" in tensors else "none",
        learned_positions=shape["context_length"] if "position_embd.weight" in tensors else 0,
    )


MPT = Architecture(
    ("mpt",), ("MptForCausalLM", "MPTForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF, prefixes=("", "-")
)
