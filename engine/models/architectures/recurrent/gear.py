"""Gear: the layers of Gemma 3, some of which have convolved keys and values that gate each other in place of
attention.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma import FOUR_NORMS
from engine.models.architectures.dense.gemma import from_hf_3 as gemma_3_from_hf
from engine.models.config import ModelConfig
from engine.models.config.convolved import GatedValues
from engine.models.headers.decoder import MAX_LAYERS, hf_layer_types
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import RecurrentNames

_FULL, _SLIDING, _CONVOLVED = "full_attention", "sliding_attention", "conv_mixer"
_AT = "local_mixer."
HF_NAMES = replace(
    FOUR_NORMS,
    recurrent=RecurrentNames(
        "", _AT + "o_proj", "", query=_AT + "q_proj", key=_AT + "k_proj", value=_AT + "v_proj",
        convolutions=(_AT + "key_conv", _AT + "value_conv"), query_norm=_AT + "q_norm",
        key_norm=_AT + "k_norm",
    ),
)  # fmt: skip
_MOST_TAPS = 64


def from_hf(keys: Keys) -> ModelConfig:
    """`GearForCausalLM`."""
    refuse_other(keys, "use_bidirectional_attention", False)
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    kinds = hf_layer_types(keys, layers, (_FULL, _SLIDING, _CONVOLVED)) or (_FULL,) * layers
    attention = [_FULL if kind == _CONVOLVED else kind for kind in kinds]
    keys = keys.over({"sliding_window": 512}).replaced("layer_types", attention)
    if keys.raw("query_pre_attn_scalar") is None:
        keys = keys.replaced("query_pre_attn_scalar", keys.raw("head_dim"))
    config = gemma_3_from_hf(keys)
    taps = keys.integer("conv_L_cache", 1, _MOST_TAPS, 3)
    return replace(
        config, attention_cap=keys.optional("attn_logit_softcapping", 0.0, 1e6),
        recurrent=GatedValues(config.heads, config.kv_heads, config.head_dim, taps),
        recurrent_layers=frozenset(layer for layer, kind in enumerate(kinds) if kind == _CONVOLVED),
    )  # fmt: skip


GEAR = Architecture((), ("GearForCausalLM",), from_hf, None, HF_NAMES, None)
