"""K-EXAONE: windows in three of four layers, no rope in the fourth, and experts as DeepSeek V3 has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_decoder,
    gguf_windows,
    hf_decoder,
    hf_layer_types,
    hf_sliding,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, SHARING
from engine.tensors import RawTensor

HF_NAMES = replace(SHARING, correction="mlp.e_score_correction_bias")
_STEP = 4
_DEFAULTS = {
    "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "num_shared_experts": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`ExaoneMoeForCausalLM`."""
    # transformers 5 writes the count under Mixtral's name.
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    keys = keys.over(_DEFAULTS)
    shape = hf_decoder(keys, bias=False, rms_norm_eps=1e-5)
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    experts = hf_experts(
        keys,
        [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer >= first)],
        count=count,
        used="num_experts_per_tok",
        width=width,
        normalise=keys.flag("norm_topk_prob", True),
        scores="sigmoid",
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.5),
        corrected=True,
        shared_width=width * keys.integer("num_shared_experts", 0, 1 << 10),
        **hf_groups(keys),
    )
    return _config(shape, hf_sliding(keys, layers, 4096, _STEP), experts)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`exaone-moe`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys = keys.replaced("block_count", layers)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "exaone-moe", handled=GGUF_EXPERT_KEYS)
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    experts = gguf_experts(keys, shape, normalise=False, scores="sigmoid")
    return _config(shape, gguf_windows(keys, layers, window, _STEP), experts)


def _config(shape: dict[str, Any], windows: tuple[int, ...], experts: Experts | None) -> ModelConfig:
    """Layers without a window have no rope where others have one."""
    whole = frozenset(layer for layer, window in enumerate(windows) if not window)
    return ModelConfig(**shape, qk_norm="head", windows=windows, nope_layers=whole, experts=experts)


EXAONE_MIXTURE = Architecture(
    ("exaone-moe",), ("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF,
    adapt=lambda names, tensors: names
    if any(name.endswith(HF_NAMES.correction) for name in tensors) or "token_embd.weight" in tensors
    else replace(names, correction=SHARING.correction),
)  # fmt: skip
