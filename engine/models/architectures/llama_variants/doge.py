"""Doge (arXiv 2412.11834): Llama with qk norm. Each key's value makes a number that is added to scores, and
what the halves of a layer are added to is multiplied number by number. Texts are no longer than attention
looks at whole.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder, hf_windows
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.attention.weighed_keys import MORE, weighed_layers
from engine.models.names import HF, RecurrentNames

NAMES = replace(
    HF, attention_residual_gate="input_residual", mlp_residual_gate="post_attention_residual",
    recurrent=RecurrentNames("", "", "", rate="self_attn.A", step="self_attn.dt_proj"),
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`DogeForCausalLM`, without experts, whose routers mix the tokens of a pass."""
    refuse_other(keys, "is_moe", False)
    keys = keys.over({
        "vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 8,
    })  # fmt: skip
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False))
    if shape["head_dim"] < MORE:
        refuse_other(keys.replaced("head_dim", shape["head_dim"]), "head_dim", MORE)
    dim, kept = shape["head_dim"], keys.integer("keep_window_size", 1, MAX_CONTEXT, 2048)
    context = min(shape["context_length"], kept)  # in longer texts it would look at some of the keys
    return ModelConfig(
        **shape | {"context_length": context, "head_dim": dim + MORE}, value_dim=dim,
        attention_scale=dim**-0.5, qk_norm="head", windows=hf_windows(keys, shape["layers"]),
    )  # fmt: skip


DOGE = Architecture((), ("DogeForCausalLM",), from_hf, None, NAMES, None, layers=weighed_layers)
