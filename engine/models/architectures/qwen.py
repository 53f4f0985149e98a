"""Qwen 2 and 2.5 (biases of queries, keys and values), Qwen 3 (qk norm), and Qwen 3's mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import Experts, ModelConfig
from engine.models.expert_headers import gguf_experts, hf_experts
from engine.models.headers import MAX_CONTEXT, MAX_LAYERS, gguf_decoder, hf_decoder, layer_kinds
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

MIXTURE = replace(
    HF, router="mlp.gate", expert_gate="mlp.experts.{}.gate_proj", expert_up="mlp.experts.{}.up_proj",
    expert_down="mlp.experts.{}.down_proj",
)  # fmt: skip


def from_hf_2(keys: Keys) -> ModelConfig:
    """`Qwen2ForCausalLM`."""
    shape = _hf_decoder(keys, True, num_key_value_heads=32) | {"output_bias": False}
    return ModelConfig(**shape, windows=_windows(keys, shape["layers"]))


def from_hf_3(keys: Keys) -> ModelConfig:
    """`Qwen3ForCausalLM`."""
    shape = _hf_decoder(keys, keys.flag("attention_bias", False), num_key_value_heads=32, head_dim=128)
    return ModelConfig(**shape, qk_norm="head", windows=_windows(keys, shape["layers"]))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`Qwen3MoeForCausalLM`: experts in every `decoder_sparse_step`-th layer except `mlp_only_layers`."""
    shape = _hf_decoder(keys, keys.flag("attention_bias", False), num_key_value_heads=4)
    layers = shape["layers"]
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 4096)
    slides = keys.flag("use_sliding_window", False) and window
    return ModelConfig(
        **shape, qk_norm="head", windows=(window,) * layers if slides else (), experts=_experts(keys, layers)
    )


def _experts(keys: Keys, layers: int) -> Experts | None:
    # transformers 5 writes the count under Mixtral's name.
    count = "num_experts" if keys.raw("num_experts") is not None else "num_local_experts"
    keys = keys.over({count: 128, "num_experts_per_tok": 8})
    step, plain = (
        keys.integer("decoder_sparse_step", 1, MAX_LAYERS, 1),
        keys.integers("mlp_only_layers", 0, MAX_LAYERS),
    )
    sparse = frozenset(layer for layer in range(layers) if (layer + 1) % step == 0 and layer not in plain)
    if not sparse or keys.raw(count) == 0:
        return None
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, 768)
    return hf_experts(
        keys,
        sparse,
        count=count,
        used="num_experts_per_tok",
        width=width,
        normalise=keys.flag("norm_topk_prob", False),
    )


def _hf_decoder(keys: Keys, bias: bool, **defaults: Any) -> dict[str, Any]:
    # For `num_key_value_heads` null means as many as query heads; an absent key, the class's default.
    absent = {} if keys.has("num_key_value_heads") else defaults
    others = {"max_position_embeddings": 32768, "head_dim": defaults.get("head_dim")}
    return hf_decoder(keys, bias=bias, **absent | others)


def _windows(keys: Keys, layers: int) -> tuple[int, ...]:
    """If `use_sliding_window` is set: `layer_types`, or all layers from `max_window_layers` on."""
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 4096)
    if not keys.flag("use_sliding_window", False) or not window:
        return ()
    first, kinds = keys.integer("max_window_layers", 0, MAX_LAYERS, 28), layer_kinds(keys, layers)
    slide = (
        [kind == "sliding_attention" for kind in kinds]
        if kinds is not None
        else [layer >= first for layer in range(layers)]
    )
    return tuple(window if slides else 0 for slides in slide)


def from_gguf_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen2`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "qwen2"))


def from_gguf_3(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen3`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "qwen3"), qk_norm="head")


def from_gguf_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen3moe`."""
    shape = gguf_decoder(keys, tensors, "qwen3moe", handled=("expert_count",))
    return ModelConfig(**shape, qk_norm="head", experts=gguf_experts(keys, shape))


QWEN_2 = Architecture(("qwen2",), ("Qwen2ForCausalLM",), from_hf_2, from_gguf_2, HF, GGUF, prefixes=("", "-"))
QWEN_3 = Architecture(("qwen3",), ("Qwen3ForCausalLM",), from_hf_3, from_gguf_3, HF, GGUF, prefixes=("", "-"))
QWEN_3_MIXTURE = Architecture(
    ("qwen3moe",), ("Qwen3MoeForCausalLM",), from_hf_mixture, from_gguf_mixture, MIXTURE, GGUF
)
