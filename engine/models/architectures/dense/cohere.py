"""Command-R and Command-R7B (Cohere 2): both halves of a block share one layer norm and run in parallel;
scaled logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_architecture, hf_decoder, layer_kinds
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(HF, mlp_norm="")
_PATTERN = 4
_QUIRKS: dict[str, Any] = {"norm": "layer", "placement": "parallel", "qk_layer_norm": True}


def from_hf(keys: Keys) -> ModelConfig:
    """`CohereForCausalLM` and `Cohere2ForCausalLM`."""
    second = hf_architecture(keys.source) == "Cohere2ForCausalLM"
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), base=10000.0 if second else 500000.0, interleaved=True,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5, max_position_embeddings=8192,
        tie_word_embeddings=True,
    )  # fmt: skip
    windows = _windows(keys, shape["layers"]) if second else ()
    return ModelConfig(
        **shape,
        **_QUIRKS,
        qk_norm="each" if not second and keys.flag("use_qk_norm", False) else "none",
        windows=windows,
        nope_layers=_full(windows),
        logit_scale=keys.number("logit_scale", 1e-6, 1e6, 0.0625),
    )


def _windows(keys: Keys, layers: int) -> tuple[int, ...]:
    window = keys.integer("sliding_window", 0, 1 << 24, 4096)
    step = keys.integer(
        "sliding_window_pattern", 1, 1 << 12, keys.integer("_sliding_window_pattern", 1, 1 << 12, _PATTERN)
    )
    kinds = layer_kinds(keys, layers)
    if kinds is None:
        return _pattern(layers, window, step)
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _pattern(layers: int, window: int, step: int) -> tuple[int, ...]:
    """Every `step`-th layer has full attention."""
    return tuple(0 if (layer + 1) % step == 0 else window for layer in range(layers))


def _full(windows: tuple[int, ...]) -> frozenset[int]:
    """The layers with full attention, which have no rope."""
    return frozenset(layer for layer, window in enumerate(windows) if not window)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`command-r` and `cohere2`."""
    architecture = keys.source["general.architecture"]
    shape = gguf_decoder(
        keys, tensors, architecture, interleaved=True, layer_norm=True, handled=("logit_scale",)
    )
    window = keys.integer("attention.sliding_window", 0, 1 << 24, 4096)
    windows = _pattern(shape["layers"], window, _PATTERN) if architecture == "cohere2" else ()
    return ModelConfig(
        **shape,
        **_QUIRKS,
        qk_norm="each" if "blk.0.attn_q_norm.weight" in tensors else "none",
        windows=windows,
        nope_layers=_full(windows),
        logit_scale=keys.number("logit_scale", 0.0, 1e6, 0.0) or 1.0,
    )


COHERE = Architecture(
    ("command-r", "cohere2"), ("CohereForCausalLM", "Cohere2ForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF
)
