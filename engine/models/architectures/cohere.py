"""Command-R and Command-R7B (Cohere 2): one layer norm for both halves of a block, which are added
together; scaled logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape, layer_kinds
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = replace(HF, mlp_norm="")
_PATTERN = 4
_QUIRKS: dict[str, Any] = {"norm": "layer", "placement": "parallel", "query_key_rms": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`CohereForCausalLM` and `Cohere2ForCausalLM`."""
    shape = hf_shape(keys, max_position_embeddings=8192, tie_word_embeddings=True)
    shape["norm_eps"] = keys.number("layer_norm_eps", 0.0, 1.0, 1e-5)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    second = keys.source["architectures"][0] == "Cohere2ForCausalLM"
    bias, layers = keys.flag("attention_bias", False), shape["layers"]
    windows = _windows(keys, layers) if second else ()
    return ModelConfig(
        **shape,
        **_QUIRKS,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"], base=10000.0 if second else 500000.0, interleaved=True),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=False,
        query_key_norm="each" if not second and keys.flag("use_qk_norm", False) else "none",
        windows=windows,
        unturned=_full(windows),
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
    """Every `step`-th layer sees all."""
    return tuple(0 if (layer + 1) % step == 0 else window for layer in range(layers))


def _full(windows: tuple[int, ...]) -> frozenset[int]:
    """The layers that see all have no rotary positions."""
    return frozenset(layer for layer, window in enumerate(windows) if not window)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`command-r` and `cohere2`."""
    architecture = keys.source["general.architecture"]
    shape = gguf_shape(keys, tensors, architecture, layer_norm=True, handled=("logit_scale",))
    window = keys.integer("attention.sliding_window", 0, 1 << 24, 4096)
    windows = _pattern(shape["layers"], window, _PATTERN) if architecture == "cohere2" else ()
    return ModelConfig(
        **shape,
        **_QUIRKS,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True),
        query_key_norm="each" if "blk.0.attn_q_norm.weight" in tensors else "none",
        windows=windows,
        unturned=_full(windows),
        logit_scale=keys.number("logit_scale", 0.0, 1e6, 0.0) or 1.0,
    )


COHERE = Architecture(
    ("command-r", "cohere2"), ("CohereForCausalLM", "Cohere2ForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF
)
