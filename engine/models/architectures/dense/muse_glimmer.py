"""Muse Glimmer, text only: norms around each half of a block as in Gemma 2, gated attention with norms of
queries and keys without weights, windows in three of four layers and no rope in the fourth, counted from the
last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma import FOUR_NORMS
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    all_layers,
    gguf_decoder,
    gguf_windows,
    hf_decoder,
    layer_kinds,
)
from engine.models.headers.keys import Keys
from engine.models.names import GGUF
from engine.tensors import RawTensor

HF_NAMES = replace(FOUR_NORMS, output_gate="self_attn.gate_proj")
GGUF_NAMES = replace(GGUF, output_gate="attn_gate", embed_norm="")
_DEFAULTS = {
    "vocab_size": 202_048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52,
    "num_attention_heads": 32,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `MuseGlimmerForConditionalGeneration`."""
    keys = text_keys(keys, _DEFAULTS)
    return ModelConfig(**text_shape(keys.renamed(hidden_act="hidden_activation")), placement="both")


def text_keys(keys: Keys, defaults: Mapping[str, Any]) -> Keys:
    """Those of the text model, of which the whole says whether tables are tied."""
    tied = keys.raw("tie_word_embeddings")
    return keys.inner("text_config").over(defaults).replaced("tie_word_embeddings", tied)


def text_shape(keys: Keys) -> dict[str, Any]:
    """The fields of `ModelConfig` that the text models of all Muse have. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), num_key_value_heads=2, head_dim=128, rms_norm_eps=1e-5,
        max_position_embeddings=131_072,
    )  # fmt: skip
    layers = shape["layers"]
    last = [(layers - 1 - layer) % 4 == 0 for layer in range(layers)]
    kinds = layer_kinds(keys, layers) or [
        "full_attention" if whole else "sliding_attention" for whole in last
    ]
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, 2048)
    name = "layer_rope_theta"  # of which 0 alone counts
    bases = keys.numbers(name, 0.0, 1e12) or tuple(0.0 if whole else 1.0 for whole in last)
    bases = all_layers(bases, name, layers)
    return shape | {
        "norm_offset": 1.0, "offset_last": False, "embed_norm": True, "qk_norm": "bare", "output_gate": "row",
        "post_norm_eps": keys.number("post_norm_eps", 0.0, 1.0, 1e-8),
        "attention_scale": keys.number("qk_scale_factor", 1e-6, 1e6, 3.87) * shape["head_dim"] ** -0.5,
        "windows": tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        "nope_layers": frozenset(layer for layer, base in enumerate(bases) if not base),
        "logit_scale": keys.number("output_multiplier", 1e-6, 1e6, 0.19611613513818404),
        "logit_cap": keys.number("final_logit_softcapping", 1e-6, 1e6, 20.0),
    }  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`muse-glimmer`, whose files have weights of the norms of queries and keys that scale attention's
    scores.
    """
    keys = keys.replaced("rope.freq_base", keys.raw("rope.freq_base_swa") or keys.raw("rope.freq_base"))
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "muse-glimmer", interleaved=True, handled=("logit_scale", "final_logit_softcapping")
    )
    window = keys.integer("attention.sliding_window", 1, MAX_CONTEXT)
    windows = gguf_windows(keys, shape["layers"], window, 4)
    return ModelConfig(
        **shape, placement="both", embed_norm=True, qk_norm="head", output_gate="row", post_norm_eps=1e-8,
        windows=windows, nope_layers=frozenset(layer for layer, own in enumerate(windows) if not own),
        logit_scale=keys.number("logit_scale", 1e-6, 1e6),
        logit_cap=keys.number("final_logit_softcapping", 0.0, 1e6, 0.0),
    )  # fmt: skip


MUSE_GLIMMER = Architecture(
    ("muse-glimmer",), ("MuseGlimmerForConditionalGeneration",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    prefixes=("-model.language_model.", "-"), interleaved_rows=True,
)  # fmt: skip
