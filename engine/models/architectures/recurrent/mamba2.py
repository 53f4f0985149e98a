"""Mamba-2 (arXiv 2405.21060) alone, and Bamba, which has attention in some layers and a feed-forward part in
all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.granite_hybrid import gguf_mamba, least_step
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Mamba
from engine.models.headers.decoder import (
    gguf_decoder,
    hf_decoder,
    hf_layer_types,
    hf_shape,
    refuse_other_than_silu,
)
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, MAMBA_GGUF, mamba_names
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, embed="backbone.embeddings", norm="backbone.norm_f", layer="backbone.layers.{}.",
    attention_norm="norm", recurrent=mamba_names("mixer"),
)  # fmt: skip
BAMBA_NAMES = replace(
    HF, norm="model.final_layernorm", mlp_norm="pre_ff_layernorm", gate="feed_forward.gate_proj",
    up="feed_forward.up_proj", down="feed_forward.down_proj", recurrent=mamba_names("mamba"),
)  # fmt: skip
GGUF_NAMES = replace(GGUF, recurrent=MAMBA_GGUF)
_MOST, _CONTEXT = 1 << 14, 1 << 20
NO_ATTENTION = {"num_attention_heads": 1, "head_dim": 2, "intermediate_size": 1}


def from_hf(keys: Keys) -> ModelConfig:
    """`Mamba2ForCausalLM`."""
    refuse_other_than_silu(keys)
    shape = hf_shape(
        Keys({**keys.source, **NO_ATTENTION, "num_key_value_heads": 1}, "config.json"), "layer_norm_epsilon",
        layer_norm_epsilon=1e-5, max_position_embeddings=_CONTEXT,
    )  # fmt: skip
    heads, dim = keys.integer("num_heads", 1, _MOST, 128), keys.integer("head_dim", 1, _MOST, 64)
    inner = keys.integer("expand", 1, 64, 2) * shape["width"]
    if inner != heads * dim:
        raise BadCheckpoint(
            _(
                "The model's Mamba layers have {heads} heads of {dim} values but {inner} features; "
                "the file is damaged.",
                heads=heads,
                dim=dim,
                inner=inner,
            )
        )
    groups = keys.integer("n_groups", 1, _MOST, 8)
    mamba = Mamba(
        heads, dim, groups, keys.integer("state_size", 1, _MOST, 128), keys.integer("conv_kernel", 1, 64, 4),
        norm_groups=groups,
        least_step=least_step(keys),
    )  # fmt: skip
    return _alone(shape, mamba)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mamba2`, whose sizes of attention and of feed-forward parts are 0."""
    shape: dict[str, Any] = gguf_decoder(without_attention(keys), tensors, "mamba2")
    return _alone(shape, gguf_mamba(keys))


def without_attention(keys: Keys) -> Keys:
    """The keys with sizes of attention and of feed-forward parts that no layer has."""
    for name, value in (
        ("attention.head_count", 1), ("attention.head_count_kv", 1), ("attention.key_length", 2),
        ("attention.value_length", 2), ("feed_forward_length", 1), ("rope.dimension_count", 2),
    ):  # fmt: skip
        keys = keys.replaced(name, value)
    return keys


def _alone(shape: dict[str, Any], mamba: Mamba) -> ModelConfig:
    own: dict[str, Any] = {"rope": None, "one_part": True, "recurrent": mamba}
    return ModelConfig(**shape | own, recurrent_layers=frozenset(range(shape["layers"])))


def from_hf_bamba(keys: Keys) -> ModelConfig:
    """`BambaForCausalLM`, whose part of a head with rope only `rope_parameters` can state."""
    refuse_other_than_silu(keys)
    keys = keys.without("partial_rotary_factor")
    absent: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False), share=0.5,
        rms_norm_eps=1e-5, max_position_embeddings=262_144, **absent,
    )  # fmt: skip
    layers = shape["layers"]
    known = ("mamba", "linear_attention", "attention", "full_attention")
    kinds = hf_layer_types(keys, layers, known) or hf_layer_types(keys, layers, known, "layers_block_type")
    full = keys.integers("attn_layer_indices", 0, layers - 1)
    if kinds is not None:
        full = tuple(
            layer for layer, kind in enumerate(kinds) if kind.endswith("attention") and kind[0] != "l"
        )
    heads, groups = keys.integer("mamba_n_heads", 1, _MOST, 128), keys.integer("mamba_n_groups", 1, _MOST, 1)
    inner = keys.integer("mamba_expand", 1, 64, 2) * shape["width"]
    own = keys.raw("mamba_d_head") not in (None, "auto")
    mamba = Mamba(
        heads, keys.integer("mamba_d_head", 1, _MOST) if own else inner // heads, groups,
        keys.integer("mamba_d_state", 1, _MOST, 256), keys.integer("mamba_d_conv", 1, 64, 4),
        norm_groups=groups,
        least_step=least_step(keys),
    )  # fmt: skip
    return ModelConfig(**shape, recurrent=mamba, recurrent_layers=frozenset(range(layers)) - frozenset(full))


MAMBA_2 = Architecture(("mamba2",), ("Mamba2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
BAMBA = Architecture((), ("BambaForCausalLM",), from_hf_bamba, None, BAMBA_NAMES, None)
