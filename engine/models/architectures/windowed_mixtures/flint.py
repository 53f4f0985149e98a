"""Flint: Qwen 3's mixture with attention sinks, experts chosen by sigmoids, and a shared one without a gate;
rope only in the layers with windows.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.llama.qwen import QWEN_2_NAMES, hf_qwen_experts
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder, layer_kinds
from engine.models.headers.keys import Keys


def from_hf(keys: Keys) -> ModelConfig:
    """`FlintForCausalLM`."""
    if keys.raw("mlp_only_layers") is None:
        keys = keys.replaced("mlp_only_layers", [0, 1])
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), num_key_value_heads=4, head_dim=128,
        max_position_embeddings=262_144,
    )  # fmt: skip
    layers = shape["layers"]
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, 513)
    whole = [kind == "full_attention" for kind in layer_kinds(keys, layers) or ()]
    whole = whole or [at < 2 or at % 4 == 1 or at == layers - 1 for at in range(layers)]
    usual = {"num_experts": 256, "num_experts_per_tok": 6, "moe_intermediate_size": 512}
    experts = hf_qwen_experts(keys, layers, usual, shared=1024, normalise=True)
    return ModelConfig(
        **shape,
        qk_norm="head",
        sinks=True,
        windows=tuple(0 if full else window for full in whole),
        nope_layers=frozenset(layer for layer, full in enumerate(whole) if full),
        experts=None if experts is None else replace(experts, scores="sigmoid", shared_gate=False),
    )


FLINT = Architecture(
    (), ("FlintForCausalLM",), from_hf, None, replace(QWEN_2_NAMES, sinks="self_attn.softmax_offset"), None,
    prefixes=("", "-"),
    adapt=lambda names, tensors: replace(names, sinks="self_attn.sinks")
    if any(name.endswith(".self_attn.sinks") for name in tensors)  # as transformers has it in memory
    else names,
)  # fmt: skip
