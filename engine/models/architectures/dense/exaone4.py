"""EXAONE 4 (arXiv 2507.11407): norms after each half, qk norm, windows in three of four layers, and no rope
in the fourth.

llama.cpp takes windows in files of 64 layers alone, the number of the only model that has them; here a file's
keys count for any number, as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, gguf_windows, hf_decoder, hf_sliding
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF,
    attention_norm="",
    mlp_norm="",
    attention_post="post_attention_layernorm",
    mlp_post="post_feedforward_layernorm",
)
_STEP = 4


def from_hf(keys: Keys) -> ModelConfig:
    """`Exaone4ForCausalLM`."""
    shape = hf_decoder(keys, bias=False, rms_norm_eps=1e-5)
    return _config(shape, hf_sliding(keys, shape["layers"], 4096, _STEP))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`exaone4`."""
    shape = gguf_decoder(keys, tensors, "exaone4")
    window = keys.integer("attention.sliding_window", 0, 1 << 24, 0)
    return _config(shape, gguf_windows(keys, shape["layers"], window, _STEP))


def _config(shape: dict[str, Any], windows: tuple[int, ...]) -> ModelConfig:
    """Layers without a window have no rope where others have one."""
    whole = frozenset(layer for layer, window in enumerate(windows) if not window)
    return ModelConfig(**shape, placement="after", qk_norm="head", windows=windows, nope_layers=whole)


EXAONE_4 = Architecture(("exaone4",), ("Exaone4ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
