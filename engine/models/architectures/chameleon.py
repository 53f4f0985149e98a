"""Chameleon (arXiv 2405.09818), from GGUF files and as text alone: Llama with a layer norm of every head's
queries and keys, in the larger model with norms behind each half of a block. Its tokens of pictures are never
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

GGUF_NAMES = replace(GGUF, attention_post="attn_norm", mlp_post="ffn_norm")
_PICTURES = 4, 8196
_QK_EPS = 1e-5


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`chameleon`."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "chameleon", interleaved=True)
    return ModelConfig(
        **shape, placement="after" if keys.flag("swin_norm", False) else "before", qk_norm="each",
        qk_layer_norm=True, qk_norm_eps=_QK_EPS, silent_tokens=_PICTURES,
    )  # fmt: skip


CHAMELEON = Architecture(("chameleon",), (), None, from_gguf, HF, GGUF_NAMES, interleaved_rows=True)
