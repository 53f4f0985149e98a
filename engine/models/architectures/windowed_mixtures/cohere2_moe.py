"""Cohere 2 with experts: the mean of what these and a shared one make; the first layers are dense, and have
rope even where they have no window.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.names import GGUF, MIXTURE, with_shared
from engine.tensors import RawTensor

_STEP = 4
_DEFAULTS = {
    "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
    "num_attention_heads": 64, "head_dim": 128, "num_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`Cohere2MoeForCausalLM`."""
    keys = keys.over(_DEFAULTS)
    rms = keys.raw("rms_norm_eps") is not None
    shape: dict[str, Any] = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), interleaved=True,
        norm_eps="rms_norm_eps" if rms else "layer_norm_eps", layer_norm_eps=1e-5,
        max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    layers, width = shape["layers"], shape["ffn_width"]
    first = min(layers, keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 0))
    parts = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    dense = [layer < first if parts is None else parts[layer] == "dense" for layer in range(layers)]
    steps = keys.integer("prefix_dense_sliding_window_pattern", 1, MAX_LAYERS, 1)
    kinds, window = layer_kinds(keys, layers), keys.integer("sliding_window", 1, MAX_CONTEXT, 4096)
    if kinds is None:
        step = keys.integer("sliding_window_pattern", 1, MAX_LAYERS, _STEP)
        full = [
            (layer + 1) % steps == 0 if layer < first else (layer - first + 1) % step == 0
            for layer in range(layers)
        ]
    else:
        full = [kind == "full_attention" for kind in kinds]
    inner = keys.integer("prefix_dense_intermediate_size", 1, 1 << 22, width)
    return ModelConfig(
        **shape, **_norms(rms),
        windows=tuple(0 if whole else window for whole in full),
        nope_layers=_bare(full, dense if steps == 1 else [False] * layers),
        ffn_widths=tuple(inner if plain else width for plain in dense),
        logit_scale=keys.number("logit_scale", 1e-6, 1e6, 0.0625),
        experts=_hf_experts(keys, [layer for layer in range(layers) if not dense[layer]], width),
    )  # fmt: skip


def _norms(rms: bool) -> dict[str, Any]:
    return {"norm": "rms" if rms else "layer", "placement": "parallel"}


def _bare(full: list[bool], dense: list[bool]) -> frozenset[int]:
    """The layers without rope: those without a window, except where dense ones have it."""
    return frozenset(
        layer for layer, (whole, plain) in enumerate(zip(full, dense, strict=True)) if whole and not plain
    )


def _hf_experts(keys: Keys, layers: list[int], width: int) -> Experts | None:
    scores, how = keys.text("expert_selection_fn", "softmax"), "shared_expert_combination_strategy"
    shared, averages = keys.integer("num_shared_experts", 0, 1 << 10, 0), keys.text(how, "average")
    for name, value, known in (
        ("expert_selection_fn", scores, ("softmax", "sigmoid")), (how, averages, ("average", "sum")),
    ):  # fmt: skip
        if value not in known:
            raise unsupported(name, value)
    mean = bool(shared) and averages == "average"
    return hf_experts(
        keys, layers, count="num_experts", used="num_experts_per_tok", width=width, scores=scores,
        # The softmax is that of the chosen experts alone.
        normalise=scores == "softmax" or keys.flag("norm_topk_prob", True), shared_width=width * shared,
        scale=0.5 if mean else 1.0, shared_scale=0.5 if mean else 1.0,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`cohere2moe`, whose last layers may predict further tokens."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    rms = keys.raw("attention.layer_norm_rms_epsilon") is not None
    shape = gguf_decoder(
        keys.replaced("block_count", layers), tensors, "cohere2moe", interleaved=True, layer_norm=not rms,
        handled=("logit_scale", *GGUF_EXPERT_KEYS),
    )  # fmt: skip
    windows = gguf_windows(keys, layers, keys.integer("attention.sliding_window", 1, MAX_CONTEXT), _STEP)
    first = keys.integer("leading_dense_block_count", 0, MAX_LAYERS, 0)
    mean = f"blk.{first}.ffn_up_shexp.weight" in tensors
    scale = (keys.number("expert_weights_scale", 0.0, 1e6, 0.0) or 1.0) * (0.5 if mean else 1.0)
    return ModelConfig(
        **shape, **_norms(rms), windows=windows,
        nope_layers=_bare([not window for window in windows], [layer < first for layer in range(layers)]),
        logit_scale=keys.number("logit_scale", 0.0, 1e6, 0.0) or 1.0,
        experts=gguf_experts(
            keys, shape, normalise=False, scores="sigmoid", corrected=False, scale=scale,
            shared_scale=0.5 if mean else 1.0,
        ),
    )  # fmt: skip


COHERE_2_MIXTURE = Architecture(
    ("cohere2moe",), ("Cohere2MoeForCausalLM",), from_hf, from_gguf,
    with_shared(MIXTURE, "mlp.shared_experts"), GGUF, prefixes=("", "-"),
)  # fmt: skip
