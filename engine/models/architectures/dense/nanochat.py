"""nanochat: norms without weights, also of embeddings, and of queries and keys after rope, which rotates by
negative angles; the square of relu, capped logits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import HF

HF_NAMES = replace(HF, gate="", up="mlp.fc1", down="mlp.fc2")
_DEFAULTS = {
    "vocab_size": 50304, "hidden_size": 768, "intermediate_size": 8192, "num_hidden_layers": 12,
    "num_attention_heads": 6,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`NanoChatForCausalLM`."""
    bias = keys.flag("attention_bias", False)
    shape: dict[str, Any] = hf_decoder(keys.over(_DEFAULTS), bias=bias, activation="relu2")
    cap = 0.0 if keys.has("final_logit_softcapping") else 15.0
    return ModelConfig(
        **shape | {"rope": _backwards(shape["rope"])},
        norm_weights=False,
        embed_norm=True,
        qk_norm="bare",
        qk_norm_last=True,
        gated=False,
        logit_cap=keys.number("final_logit_softcapping", 0.0, 1e6, cap),
    )


def _backwards(rope: RopeConfig) -> RopeConfig:
    """The rope by negative angles."""
    return replace(
        rope, divisors=tuple(-value for value in rope.divisors),
        long_divisors=tuple(-value for value in rope.long_divisors),
    )  # fmt: skip


NANOCHAT = Architecture((), ("NanoChatForCausalLM",), from_hf, None, HF_NAMES, None, prefixes=("", "-"))
