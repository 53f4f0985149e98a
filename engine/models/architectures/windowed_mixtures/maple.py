"""Maple: experts of ternary weights in all layers, windows with rope in three of four and no rope in the
fourth; what goes into an expert's activation, and what that multiplies, is limited.

Source: `modeling_maple.py` of deepgrove's folders, llama.cpp's `maple.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts, Limits
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    all_layers,
    gguf_decoder,
    gguf_windows,
    hf_decoder,
    hf_sliding,
)
from engine.models.headers.experts import gate_limits, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, MIXTURE
from engine.tensors import RawTensor

HF_NAMES = replace(MIXTURE, embed="model.word_embeddings")
_LIMIT, _CLAMP = 7.0, "swiglu_clamp_exp"
_STEP, _WINDOW = 4, 512
_ONLY = {"hidden_act": "silu", "norm_topk_prob": True, "num_shared_experts": 0, "use_qk_norm": True}


def from_hf(keys: Keys) -> ModelConfig:
    """`MapleForCausalLM`."""
    for name, value in _ONLY.items():
        refuse_other(keys, name, value)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    shape: dict[str, Any] = hf_decoder(
        keys.replaced("intermediate_size", width),  # all layers have experts
        bias=False, share=1.0, max_position_embeddings=128_000,
    )  # fmt: skip
    layers = shape["layers"]
    experts = hf_experts(
        keys, range(layers), count="num_experts", used="num_experts_per_tok", width=width, normalise=True
    )
    return _config(shape, hf_sliding(keys, layers, _WINDOW, _STEP), experts, (_LIMIT,) * layers)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`maple`; the only layers with rope are those with a window."""
    for name in ("rope.freq_base", "rope.dimension_count"):
        keys = keys.replaced(name, keys.raw(name + "_swa") or keys.raw(name))
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "maple", handled=("expert_count",))
    layers, window = shape["layers"], keys.integer("attention.sliding_window", 0, MAX_CONTEXT)
    if isinstance(keys.raw(_CLAMP), list):
        limits = all_layers(keys.numbers(_CLAMP, 0.0, 1e6), _CLAMP, layers)
    else:
        limits = (keys.number(_CLAMP, 0.0, 1e6, _LIMIT),) * layers
    return _config(shape, gguf_windows(keys, layers, window, _STEP), gguf_experts(keys, shape), limits)


def _config(
    shape: dict[str, Any], windows: tuple[int, ...], experts: Experts | None, limits: tuple[float, ...]
) -> ModelConfig:
    found: tuple[Limits | None, ...] = tuple(
        gate_limits(_CLAMP, limit) if limit else None for limit in limits
    )
    return ModelConfig(
        **shape, qk_norm="head", windows=windows, experts=experts,
        nope_layers=frozenset(layer for layer in range(shape["layers"]) if not (windows and windows[layer])),
        expert_limits=found if any(found) else (),
    )  # fmt: skip


MAPLE = Architecture(("maple",), ("MapleForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
