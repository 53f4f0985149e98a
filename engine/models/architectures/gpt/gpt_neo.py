"""GPT-Neo, also TinyStories: GPT-2 with separate matrices, windows in every other layer, and scores that are
not scaled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_kinds
from engine.models.names import HF

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.ln_f", layer="transformer.h.{}.",
    positions="transformer.wpe", attention_norm="ln_1", query="attn.attention.q_proj",
    key="attn.attention.k_proj", value="attn.attention.v_proj", output="attn.attention.out_proj",
    mlp_norm="ln_2", gate="", up="mlp.c_fc", down="mlp.c_proj",
)  # fmt: skip
_DEFAULTS = {"vocab_size": 50257, "hidden_size": 2048, "num_layers": 24, "num_heads": 16}


def from_hf(keys: Keys) -> ModelConfig:
    """`GPTNeoForCausalLM`."""
    keys = keys.over(_DEFAULTS).renamed(num_hidden_layers="num_layers", num_attention_heads="num_heads")
    inner = keys.integer("intermediate_size", 1, 1 << 22, 4 * keys.integer("hidden_size", 1, 1 << 20))
    shape = hf_shape(
        keys.replaced("intermediate_size", inner).without("num_key_value_heads", "head_dim"),
        "layer_norm_epsilon", layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    local = _local(keys, shape["layers"])
    window = keys.integer("window_size", 1, MAX_CONTEXT, 256)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys, "activation_function", "gelu_new"),
        rope=None,
        learned_positions=shape["context_length"],
        windows=tuple(window if slides else 0 for slides in local) if any(local) else (),
        attention_scale=1.0,
        attention_bias=False,
        output_bias=True,
        mlp_bias=True,
        norm="layer",
        norm_bias=True,
        gated=False,
    )


def _local(keys: Keys, layers: int) -> list[bool]:
    """Whether each layer has a window: `attention_types` is a list of lists of kinds, each with how often it
    comes.
    """
    found: list[bool] = []
    known = {"global": False, "local": True}
    usual: Any = [[["global", "local"], (layers + 1) // 2]]
    try:
        for kinds, times in keys.raw("attention_types") or usual:
            found += ([known[kind] for kind in kinds] * min(times, MAX_LAYERS))[:MAX_LAYERS]
    except (TypeError, ValueError, KeyError):
        found = []
    if len(found) < layers:
        raise not_kinds("attention_types", layers)
    return found[:layers]


GPT_NEO = Architecture((), ("GPTNeoForCausalLM",), from_hf, None, HF_NAMES, None, prefixes=("", "-"))
