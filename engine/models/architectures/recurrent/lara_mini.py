"""Lara Mini: layers of three kinds, gated delta nets as in Qwen 3.5, attention with windows and rope, and
attention without either; and a mixture of experts with a shared one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.llama.qwen import hf_qwen_experts
from engine.models.architectures.recurrent.qwen3_5 import MIXTURE_NAMES
from engine.models.config import ModelConfig
from engine.models.config.recurrent import DeltaNet
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder, hf_layer_types, refuse_other_than_silu
from engine.models.headers.keys import Keys
from engine.models.names import TensorNames
from engine.tensors import RawTensor

_PATTERN = (
    "linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention",
)  # fmt: skip
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """`LaraMiniForCausalLM`."""
    refuse_other_than_silu(keys)
    # All layers have experts, so there is no other feed-forward part.
    keys = keys.over({"moe_intermediate_size": 512}).without("decoder_sparse_step", "mlp_only_layers")
    shape = hf_decoder(
        keys.replaced("intermediate_size", keys.raw("moe_intermediate_size")),
        bias=keys.flag("attention_bias", False), num_key_value_heads=4, head_dim=128,
        max_position_embeddings=131_072, tie_word_embeddings=True,
    )  # fmt: skip
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, tuple(dict.fromkeys(_PATTERN)))
    kinds = kinds or tuple(_PATTERN[layer % len(_PATTERN)] for layer in range(layers))
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, 512)
    usual = {"num_experts": 128, "num_experts_per_tok": 4}
    experts = hf_qwen_experts(keys, layers, usual, shared=512, normalise=True)
    return ModelConfig(
        **shape,
        qk_norm="head",
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        nope_layers=frozenset(layer for layer, kind in enumerate(kinds) if kind == "full_attention"),
        recurrent=DeltaNet(
            keys.integer("linear_num_key_heads", 1, _MOST, 8),
            keys.integer("linear_num_value_heads", 1, _MOST, 16),
            keys.integer("linear_key_head_dim", 1, _MOST, 128),
            keys.integer("linear_value_head_dim", 1, _MOST, 128),
            keys.integer("linear_conv_kernel_dim", 1, 64, 4),
        ),
        recurrent_layers=frozenset(layer for layer, kind in enumerate(kinds) if kind == "linear_attention"),
        experts=None if experts is None else replace(experts, shared_gate=False),
    )


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The authors have one matrix for all that a delta net makes of its input."""
    if names.recurrent is None or not any(name.endswith(".linear_attn.in_proj.weight") for name in tensors):
        return names
    own = replace(names.recurrent, fused="linear_attn.in_proj", norm="linear_attn.out_norm")
    return replace(names, recurrent=own)


LARA_MINI = Architecture((), ("LaraMiniForCausalLM",), from_hf, None, MIXTURE_NAMES, None, adapt=_adapt)
