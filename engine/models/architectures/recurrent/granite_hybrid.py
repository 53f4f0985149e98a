"""Granite 4: Granite with Mamba-2 in most layers and attention, usually without rope, in the others; dense,
or with experts and a shared one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.llama.granite import (
    GGUF_MULTIPLIERS,
    MIXTURE_NAMES,
    adapted,
    gguf_multipliers,
    gguf_nope_layers,
    hf_granite_experts,
    hf_multipliers,
)
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Mamba
from engine.models.headers.decoder import (
    gguf_decoder,
    hf_decoder,
    hf_layer_types,
    recurrent_by_heads,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, MAMBA_GGUF, mamba_names
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    MIXTURE_NAMES, gate="", up="", gate_up="shared_mlp.input_linear", down="shared_mlp.output_linear",
    recurrent=mamba_names("mamba"),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    recurrent=MAMBA_GGUF,
)  # fmt: skip
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """`GraniteMoeHybridForCausalLM`."""
    keys = keys.over({"num_local_experts": 8, "shared_intermediate_size": 1024})
    bias, shared = keys.flag("attention_bias", False), keys.integer("shared_intermediate_size", 1, 1 << 22)
    with_rope = keys.raw("position_embedding_type") == "rope"
    shape = hf_decoder(keys.replaced("intermediate_size", shared), bias=bias, rotated=with_rope)
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("mamba", "linear_attention", "attention", "full_attention"))
    recurrent = [kind in ("mamba", "linear_attention") for kind in kinds or ("mamba",) * layers]
    if any(recurrent):
        refuse_other_than_silu(keys)
    heads = keys.integer("mamba_n_heads", 1, _MOST, 128)
    inner = keys.integer("mamba_expand", 1, 64, 2) * shape["width"]
    groups = keys.integer("mamba_n_groups", 1, _MOST, 1)
    own = keys.raw("mamba_d_head") not in (None, "auto")
    return ModelConfig(
        **shape,
        **hf_multipliers(keys),
        experts=hf_granite_experts(keys, shape, shared) if keys.raw("num_local_experts") else None,
        nope_layers=frozenset() if with_rope else frozenset(range(layers)),
        recurrent=Mamba(
            heads,
            keys.integer("mamba_d_head", 1, _MOST) if own else inner // heads,
            groups,
            keys.integer("mamba_d_state", 1, _MOST, 256),
            keys.integer("mamba_d_conv", 1, 64, 4),
            norm_groups=groups,
            least_step=least_step(keys),
        ),
        recurrent_layers=frozenset(layer for layer in range(layers) if recurrent[layer]),
    )


def least_step(keys: Keys) -> float:
    """The least step of Mamba layers. Raises `UnsupportedModel` where steps have an upper limit."""
    limits = keys.raw("time_step_limit")
    endless = (math.inf, {"__float__": "Infinity"}, "Infinity")  # as Python and as transformers 5 write it
    if limits is None:
        return 0.0
    if not (
        isinstance(limits, list)
        and len(limits) == 2
        and isinstance(limits[0], int | float)
        and 0 <= limits[0] <= 1
        and limits[1] in endless
    ):
        raise UnsupportedModel(
            _(
                "The steps of the model's Mamba layers are limited to {limits} (time_step_limit), "
                "which is not supported. Choose another model.",
                limits=limits,
            )
        )
    return float(limits[0])


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granitehybrid`, whose `rope.scaling.finetuned` says whether there is rope."""
    keys, recurrent = recurrent_by_heads(keys)
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "granitehybrid", interleaved=True,
        handled=(*GGUF_MULTIPLIERS, *GGUF_EXPERT_KEYS),
    )  # fmt: skip
    return ModelConfig(
        **shape,
        **gguf_multipliers(keys),
        nope_layers=gguf_nope_layers(keys, shape["layers"]),
        experts=gguf_experts(keys, shape),
        recurrent=gguf_mamba(keys),
        recurrent_layers=recurrent,
    )


def gguf_mamba(keys: Keys) -> Mamba:
    """The keys of Mamba-2 layers, which GGUF files of all families name alike."""
    heads = keys.integer("ssm.time_step_rank", 1, _MOST)
    groups = keys.integer("ssm.group_count", 1, _MOST)
    return Mamba(
        heads,
        keys.integer("ssm.inner_size", heads, _MOST * heads) // heads,
        groups,
        keys.integer("ssm.state_size", 1, _MOST),
        keys.integer("ssm.conv_kernel", 1, 64),
        norm_groups=groups,
    )


GRANITE_4 = Architecture(
    ("granitehybrid",), ("GraniteMoeHybridForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    interleaved_rows=True, adapt=adapted,
)  # fmt: skip
