"""Ring-linear (Bailing MoE Linear, arXiv 2510.19338): Ling 2 with lightning attention in most layers."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.mixtures.bailing import HF_NAMES as LING_NAMES
from engine.models.architectures.mixtures.bailing import from_hf_2
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Lightning
from engine.models.headers.decoder import MAX_LAYERS
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import RecurrentNames
from engine.words import _

_AT = "attention."
HF_NAMES = replace(
    LING_NAMES,
    recurrent=RecurrentNames(
        _AT + "query_key_value", _AT + "dense", "", _AT + "g_proj", norm=_AT + "g_norm",
        query_norm=_AT + "query_layernorm", key_norm=_AT + "key_layernorm",
    ),
)  # fmt: skip
_ONLY = {"linear_silu": False, "use_linear_silu": False, "linear_rope": True}
"""What engines can do otherwise."""


def from_hf(keys: Keys) -> ModelConfig:
    """`BailingMoeLinearV2ForCausalLM`, before it `BailingMoeLinearForCausalLM`."""
    for name, value in _ONLY.items():
        refuse_other(keys, name, value)
    config = from_hf_2(keys)
    layers, heads = config.layers, config.heads
    each = keys.integer("layer_group_size", 1, MAX_LAYERS, 1)
    groups = keys.integer("group_norm_size", 1, 1 << 14, 1)
    if heads * config.head_dim % groups:
        raise UnsupportedModel(
            _(
                "The model sets {name} to {value!r}, which is not supported. Choose another model.",
                name="group_norm_size",
                value=groups,
            )
        )
    whole = layers // each * each  # behind these all have plain attention
    return replace(
        config,
        recurrent=Lightning(heads, config.head_dim, config.norm_eps, groups, rotated=True),
        recurrent_layers=frozenset(layer for layer in range(whole) if (layer + 1) % each),
    )


LING_LINEAR = Architecture(
    (), ("BailingMoeLinearV2ForCausalLM", "BailingMoeLinearForCausalLM"), from_hf, None, HF_NAMES, None
)
