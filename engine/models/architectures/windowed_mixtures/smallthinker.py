"""SmallThinker (arXiv 2507.20984): experts with ReLU gates that a router chooses before attention, from a
layer's bare input; windows in some layers and no rope in the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, gguf_decoder, hf_decoder
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, with_experts
from engine.tensors import RawTensor

_AT = "block_sparse_moe"
HF_NAMES = replace(
    with_experts(HF, f"{_AT}.experts", "gate", "up", "down"), router=f"{_AT}.primary_router"
)  # fmt: skip
_PERIOD = 4
"""In GGUF files with windows every fourth layer, beginning with the first, has neither window nor rope."""


def from_hf(keys: Keys) -> ModelConfig:
    """`SmallThinkerForCausalLM`, under the original keys."""
    width = keys.integer("moe_ffn_hidden_size", 1, 1 << 22, 768)
    keys = keys.over({
        "intermediate_size": width, "moe_num_primary_experts": 32, "moe_num_active_primary_experts": 4,
        "num_key_value_heads": 2,
    })  # fmt: skip
    shape: dict[str, Any] = hf_decoder(
        keys, bias=False, base=1e6, head_dim=128, max_position_embeddings=131_072, tie_word_embeddings=True,
    )  # fmt: skip
    layers = shape["layers"]
    rotated = _layout(keys, "rope_layout", layers, 1)
    slides = _layout(keys, "sliding_window_layout", layers, 0)
    window = keys.integer("sliding_window_size", 0, MAX_CONTEXT, 4096)
    softmax = keys.flag("moe_primary_router_apply_softmax", False)
    experts = hf_experts(
        keys, range(layers), count="moe_num_primary_experts", used="moe_num_active_primary_experts",
        width=width, normalise=True, scores="softmax" if softmax else "sigmoid", early=True,
    )  # fmt: skip
    return ModelConfig(
        **shape | {"activation": "relu"},
        windows=tuple(window if slide else 0 for slide in slides) if window and any(slides) else (),
        nope_layers=frozenset(layer for layer in range(layers) if not rotated[layer]),
        qk_norm="head" if keys.flag("use_qk_norm", False) else "none",
        experts=experts,
    )


def _layout(keys: Keys, name: str, layers: int, usual: int) -> tuple[int, ...]:
    """A list of 0 or 1 for each layer; what it lacks is as usual."""
    return (*keys.integers(name, 0, 1), *(usual,) * layers)[:layers]


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`smallthinker`."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "smallthinker", handled=("expert_count",))
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    full = frozenset(range(0, shape["layers"], _PERIOD)) if window else frozenset()
    return ModelConfig(
        **shape | {"activation": "relu"},
        windows=tuple(0 if layer in full else window for layer in range(shape["layers"])) if window else (),
        nope_layers=full,
        experts=gguf_experts(keys, shape, early=True),
    )


SMALL_THINKER = Architecture(
    ("smallthinker",), ("SmallThinkerForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF
)
