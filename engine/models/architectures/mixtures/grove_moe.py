"""Grove MoE (arXiv 2508.07785), from GGUF files: Qwen 3's mixture, whose neighbouring experts have a small
adjugate expert in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, MIXTURE
from engine.tensors import RawTensor

GGUF_NAMES = replace(
    GGUF, adjugate_gate="ffn_gate_chexps", adjugate_up="ffn_up_chexps", adjugate_down="ffn_down_chexps"
)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`grovemoe`."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "grovemoe", handled=GGUF_EXPERT_KEYS)
    return ModelConfig(
        **shape,
        qk_norm="head",
        experts=gguf_experts(
            keys, shape, adjugates=keys.integer("experts_per_group", 1, 1 << 10),
            adjugate_width=keys.integer("expert_chunk_feed_forward_length", 1, 1 << 22),
            adjugate_scale=keys.number("expert_group_scale", 0.0, 1e6),
        ),
    )  # fmt: skip


GROVE_MOE = Architecture(("grovemoe",), (), None, from_gguf, MIXTURE, GGUF_NAMES)
