"""RWKV-4 (arXiv 2305.13048), as transformers has it."""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv4
from engine.models.headers.decoder import MAX_LAYERS, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import HF, ShiftNames

NAMES = replace(
    HF, embed="rwkv.embeddings", norm="rwkv.ln_out", head="head", layer="rwkv.blocks.{}.",
    embed_norm="rwkv.blocks.0.pre_ln", attention_norm="ln1", mlp_norm="ln2", query="attention.receptance",
    key="attention.key", value="attention.value", output="attention.output", gate="",
    up="feed_forward.key", down="feed_forward.value",
    shifted=ShiftNames(
        tuple(f"attention.time_mix_{part}" for part in ("key", "value", "receptance")),
        ("attention.time_decay",), "attention.time_first",
        ("feed_forward.time_mix_key", "feed_forward.time_mix_receptance"), "feed_forward.receptance",
        of_the_row=True,
    ),
)  # fmt: skip
_EPS = 1e-5
"""Of the last norm, whatever config.json says of the others."""


def from_hf(keys: Keys) -> ModelConfig:
    """`RwkvForCausalLM`."""
    keys = keys.over({"vocab_size": 50277, "hidden_size": 4096, "num_hidden_layers": 32})
    refuse_other(keys, "layer_norm_epsilon", _EPS)
    width = keys.integer("hidden_size", 1, 1 << 20)
    if keys.raw("intermediate_size") is None:
        keys = keys.replaced("intermediate_size", 4 * width)
    channels = keys.integer("attention_hidden_size", 1, 1 << 20, width)
    every = keys.integer("rescale_every", -MAX_LAYERS, MAX_LAYERS, 6)
    keys = keys.replaced("num_attention_heads", 1).replaced("num_key_value_heads", 1).replaced("head_dim", 2)
    shape = hf_shape(
        keys.renamed(max_position_embeddings="context_length"), "layer_norm_epsilon",
        max_position_embeddings=1024, layer_norm_epsilon=_EPS,
    )  # fmt: skip
    return ModelConfig(
        **shape, rope=None, norm="layer", norm_bias=True, embed_norm=True, gated=False, mlp_bias=False,
        activation="relu2", recurrent=Rwkv4(channels, max(0, every)),
        recurrent_layers=frozenset(range(shape["layers"])),
    )  # fmt: skip


RWKV_4 = Architecture((), ("RwkvForCausalLM",), from_hf, None, NAMES, None)
