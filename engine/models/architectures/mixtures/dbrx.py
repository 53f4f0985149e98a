"""DBRX: experts, layer norms without biases, and queries, keys and values of a limited size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_activation, hf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_AT = "norm_attn_norm"
HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.norm_f", layer="transformer.blocks.{}.",
    attention_norm=f"{_AT}.norm_1", query="", key="", value="", query_key_value=f"{_AT}.attn.Wqkv",
    output=f"{_AT}.attn.out_proj", mlp_norm=f"{_AT}.norm_2", router="ffn.router.layer",
    expert_gate="ffn.experts.mlp.w1", expert_up="ffn.experts.mlp.v1", expert_down="ffn.experts.mlp.w2",
    stack_ends=("", "_bias"), stacks_flat=True,
)  # fmt: skip
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": False}
_DEFAULTS = {"vocab_size": 32000, "d_model": 2048, "n_layers": 24, "n_heads": 16, "max_seq_len": 2048}
_MOST = 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`DbrxForCausalLM`."""
    keys = keys.over(_DEFAULTS).renamed(
        hidden_size="d_model", num_hidden_layers="n_layers", num_attention_heads="n_heads",
        max_position_embeddings="max_seq_len",
    )  # fmt: skip
    attention, own = keys.table("attn_config"), keys.table("ffn_config")
    attention = attention or Keys({}, "config.json: attn_config")
    own = (own or Keys({}, "config.json: ffn_config")).over({"moe_num_experts": 4, "moe_top_k": 1})
    width = own.integer("ffn_hidden_size", 1, 1 << 22, 3584)
    keys = keys.replaced("num_key_value_heads", attention.integer("kv_n_heads", 1, 1 << 14, 1))
    shape: dict[str, Any] = hf_decoder(
        keys.replaced("intermediate_size", width).without("head_dim"), bias=False,
        base=attention.number("rope_theta", 1.0, 1e12, 10000.0),
    )  # fmt: skip
    power = own.number("moe_normalize_expert_weights", 0.0, _MOST, 1.0)
    if power != 1:
        raise unsupported("moe_normalize_expert_weights", power)
    whole = not own.has("moe_normalize_expert_weights") or own.raw("moe_normalize_expert_weights") is not None
    named = own.table("ffn_act_fn")
    shape |= {"norm_eps": 1e-5, "activation": hf_activation(named, "name") if named else "silu"}
    return ModelConfig(
        **shape,
        **_QUIRKS,
        attention_clip=attention.optional("clip_qkv", 0.0, _MOST),
        experts=hf_experts(
            own, range(shape["layers"]), count="moe_num_experts", used="moe_top_k", width=width,
            normalise=whole,
        ),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`dbrx`."""
    handled = ("attention.clamp_kqv", *GGUF_EXPERT_KEYS)
    shape = gguf_decoder(keys, tensors, "dbrx", layer_norm=True, handled=handled)
    return ModelConfig(
        **shape, **_QUIRKS, attention_clip=keys.number("attention.clamp_kqv", 0.0, _MOST, 0.0),
        experts=gguf_experts(keys, shape),
    )  # fmt: skip


DBRX = Architecture(
    ("dbrx",), ("DbrxForCausalLM",), from_hf, from_gguf, HF_NAMES, replace(GGUF, mlp_norm="attn_output_norm"),
    prefixes=("", "-"),
)  # fmt: skip
