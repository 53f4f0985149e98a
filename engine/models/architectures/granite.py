"""Granite 3: Llama with multipliers on embeddings, attention, residuals and logits; also with experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import Experts, ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

MIXTURE_NAMES = replace(
    HF, router="block_sparse_moe.router.layer", expert_gate_up="block_sparse_moe.input_linear",
    expert_down="block_sparse_moe.output_linear", shared_gate_up="shared_mlp.input_linear",
    shared_down="shared_mlp.output_linear",
)  # fmt: skip
GGUF_MULTIPLIERS = ("attention.scale", "logit_scale", "embedding_scale", "residual_scale")
_SMALLEST, _LARGEST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`GraniteForCausalLM`."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    return ModelConfig(**hf_decoder(keys, bias=bias, mlp_bias=mlp_bias), **hf_multipliers(keys))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`GraniteMoeForCausalLM`, and `GraniteMoeSharedForCausalLM` with a shared expert."""
    keys = keys.over({"num_local_experts": 8})
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    shares = keys.source["architectures"][0] == "GraniteMoeSharedForCausalLM"
    shared = keys.integer("shared_intermediate_size", 0, 1 << 22, 0)
    return ModelConfig(
        **shape, **hf_multipliers(keys), experts=hf_granite_experts(keys, shape, shared if shares else 0)
    )


def hf_granite_experts(keys: Keys, shape: dict[str, Any], shared: int) -> Experts | None:
    """Experts in all layers, and one of `shared` features beside them."""
    return hf_experts(
        keys.over({"num_experts_per_tok": 2}),
        range(shape["layers"]),
        count="num_local_experts",
        used="num_experts_per_tok",
        width=keys.integer("intermediate_size", 1, 1 << 22),
        normalise=True,
        shared_width=shared,
    )


def hf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of config.json."""
    return {
        "embed_scale": keys.number("embedding_multiplier", _SMALLEST, _LARGEST, 1.0),
        "residual_scale": keys.number("residual_multiplier", _SMALLEST, _LARGEST, 1.0),
        "attention_scale": keys.number("attention_multiplier", _SMALLEST, _LARGEST, 1.0),
        "logit_scale": 1 / keys.number("logits_scaling", _SMALLEST, _LARGEST, 1.0),
    }


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granite` and `granitemoe`, whose logits are divided by `logit_scale`; without rope if
    `rope.scaling.finetuned` says so.
    """
    architecture = keys.source["general.architecture"]
    handled = (*GGUF_MULTIPLIERS, *(GGUF_EXPERT_KEYS if architecture == "granitemoe" else ()))
    shape = gguf_decoder(keys, tensors, architecture, interleaved=True, handled=handled)
    return ModelConfig(
        **shape,
        **gguf_multipliers(keys),
        nope_layers=gguf_nope_layers(keys, shape["layers"]),
        experts=gguf_experts(keys, shape),
    )


def gguf_nope_layers(keys: Keys, layers: int) -> frozenset[int]:
    """All layers if `rope.scaling.finetuned` is false."""
    return frozenset() if keys.flag("rope.scaling.finetuned", True) else frozenset(range(layers))


def gguf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of GGUF metadata; 0 for none."""
    return {
        "embed_scale": keys.number("embedding_scale", 0.0, _LARGEST, 0.0) or 1.0,
        "residual_scale": keys.number("residual_scale", 0.0, _LARGEST, 0.0) or 1.0,
        "attention_scale": keys.number("attention.scale", 0.0, _LARGEST, 0.0),
        "logit_scale": 1 / (keys.number("logit_scale", 0.0, _LARGEST, 0.0) or 1.0),
    }


GRANITE = Architecture(
    ("granite",), ("GraniteForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
GRANITE_MIXTURE = Architecture(
    ("granitemoe",), ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"), from_hf_mixture, from_gguf,
    MIXTURE_NAMES, GGUF, interleaved_rows=True,
)  # fmt: skip
