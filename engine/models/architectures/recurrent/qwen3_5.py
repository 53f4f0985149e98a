"""Qwen 3.5, 3.6 and Qwen3-Next: gated delta nets with full attention in every fourth layer, whose result a
gate multiplies; dense, or mixtures with a shared expert. Vision is left out; the head for
multi-token prediction drafts (`engine.models.drafting.mtp`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.models.architecture import Architecture
from engine.models.architectures.llama.qwen import QWEN_2_NAMES, gguf_qwen_experts, hf_qwen_experts
from engine.models.config import ModelConfig
from engine.models.config.recurrent import DeltaNet
from engine.models.headers.decoder import (
    MAX_LAYERS,
    gguf_decoder,
    hf_decoder,
    hf_layer_types,
    recurrent_by_heads,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS
from engine.models.headers.keys import Keys
from engine.models.headers.rope_sections import usual_sections
from engine.models.names import GGUF, HF, RecurrentNames, TensorNames
from engine.models.names.mlx import has_mlx_taps
from engine.tensors import RawTensor

_HF_DELTA = RecurrentNames(
    "linear_attn.in_proj_qkv", "linear_attn.out_proj", "linear_attn.conv1d", "linear_attn.in_proj_z",
    "linear_attn.in_proj_a", "linear_attn.in_proj_b", rate="linear_attn.A_log",
    shift="linear_attn.dt_bias", norm="linear_attn.norm",
)  # fmt: skip
_GGUF_DELTA = RecurrentNames(
    "attn_qkv", "ssm_out", "ssm_conv1d", "attn_gate", "ssm_alpha", "ssm_beta", rate="ssm_a",
    shift="ssm_dt.bias", norm="ssm_norm", gguf=True,
)  # fmt: skip
HF_NAMES = replace(HF, recurrent=_HF_DELTA)
GGUF_NAMES = replace(GGUF, mlp_norm="post_attention_norm", attention_post="", recurrent=_GGUF_DELTA)
MIXTURE_NAMES = replace(QWEN_2_NAMES, recurrent=_HF_DELTA)
GGUF_NEXT = replace(GGUF_NAMES, recurrent=replace(_GGUF_DELTA, decay_beta="ssm_ba"))
NEXT_NAMES = replace(
    QWEN_2_NAMES,
    recurrent=replace(
        _HF_DELTA, input="linear_attn.in_proj_qkvz", gate="", decay_beta="linear_attn.in_proj_ba"
    ),
)
_PREFIXES = ("", "-model.language_model.", "-", "language_model.")
"""The last is mlx-lm's."""
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """`Qwen3_5ForCausalLM`, and the text model of `Qwen3_5ForConditionalGeneration`."""
    return _of_pictures(_from_hf(keys.inner("text_config").over({"num_key_value_heads": 4})))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`Qwen3_5MoeForCausalLM`, and the text model of `Qwen3_5MoeForConditionalGeneration`."""
    keys = keys.inner("text_config").over({"num_key_value_heads": 2, "moe_intermediate_size": 512})
    # All layers have experts, so there is no other feed-forward part.
    keys = keys.replaced("intermediate_size", keys.raw("moe_intermediate_size"))
    usual = {"num_experts": 256, "num_experts_per_tok": 8}
    config = _from_hf(keys.without("decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"))
    experts = hf_qwen_experts(
        keys.without("decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"), config.layers, usual,
        shared=512, normalise=True,
    )  # fmt: skip
    return _of_pictures(replace(config, experts=experts))


def _of_pictures(config: ModelConfig) -> ModelConfig:
    """The same with the family's sections of rotary positions."""
    return replace(config, rope=usual_sections(config.rope, (11, 11, 10), interleaved=True))


def from_hf_next(keys: Keys) -> ModelConfig:
    """`Qwen3NextForCausalLM`."""
    keys = keys.over({"num_key_value_heads": 2, "intermediate_size": 5632})
    usual = {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
    config = _from_hf(keys)
    experts = hf_qwen_experts(keys, config.layers, usual, shared=512, normalise=True)
    return replace(config, experts=experts)


def _from_hf(keys: Keys) -> ModelConfig:
    refuse_other_than_silu(keys)
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), share=0.25, head_dim=256, max_position_embeddings=32768
    )
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    return ModelConfig(
        **shape,
        qk_norm="head",
        norm_offset=1.0,
        output_gate="queries",
        recurrent=DeltaNet(
            keys.integer("linear_num_key_heads", 1, _MOST, 16),
            keys.integer("linear_num_value_heads", 1, _MOST, 32),
            keys.integer("linear_key_head_dim", 1, _MOST, 128),
            keys.integer("linear_value_head_dim", 1, _MOST, 128),
            keys.integer("linear_conv_kernel_dim", 1, 64, 4),
        ),
        recurrent_layers=_every_fourth(keys, layers)
        if kinds is None
        else frozenset(layer for layer, kind in enumerate(kinds) if kind == "linear_attention"),
    )


def _every_fourth(keys: Keys, layers: int) -> frozenset[int]:
    """All layers but every `full_attention_interval`-th."""
    step = keys.integer("full_attention_interval", 1, MAX_LAYERS, 4)
    return frozenset(layer for layer in range(layers) if (layer + 1) % step)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen35`, whose value heads are in the order of all key heads again and again."""
    return delta_from_gguf(keys, tensors, "qwen35", tiled=True)


def from_gguf_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen35moe`."""
    return _mixture(keys, delta_from_gguf(gguf_width(keys), tensors, "qwen35moe", tiled=True))


def from_gguf_next(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen3next`."""
    return _mixture(keys, delta_from_gguf(gguf_width(keys), tensors, "qwen3next", tiled=False))


def gguf_width(keys: Keys) -> Keys:
    """The features inside a part without experts, which no layer has, may be left out."""
    return keys.over({"feed_forward_length": keys.raw("expert_feed_forward_length")})


def _mixture(keys: Keys, config: ModelConfig) -> ModelConfig:
    shape = {"ffn_width": config.ffn_width, "layers": config.layers}
    return replace(config, experts=gguf_qwen_experts(keys, shape))


def delta_from_gguf(
    keys: Keys, tensors: Mapping[str, RawTensor], architecture: str, *, tiled: bool
) -> ModelConfig:
    """Gated delta nets and attention under the keys of GGUF files; `tiled` as in `DeltaNet`."""
    keys, recurrent = recurrent_by_heads(keys)
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    shape = gguf_decoder(
        keys.replaced("block_count", layers), tensors, architecture, handled=GGUF_EXPERT_KEYS
    )
    listed = keys.flags("attention.recurrent_layers", layers)
    groups = keys.integer("ssm.group_count", 1, _MOST)
    heads = keys.integer("ssm.time_step_rank", 1, _MOST)
    return ModelConfig(
        **shape,
        qk_norm="head",
        output_gate="queries",
        recurrent=DeltaNet(
            groups,
            heads,
            keys.integer("ssm.state_size", 1, _MOST),
            keys.integer("ssm.inner_size", heads, _MOST * heads) // heads,
            keys.integer("ssm.conv_kernel", 1, 64, 4),
            tiled=tiled,
        ),
        recurrent_layers=frozenset(layer for layer in recurrent if layer < layers)
        or (frozenset(np.flatnonzero(listed).tolist()) if listed else _every_fourth(keys, layers)),
    )


def completed(config: ModelConfig, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """In folders that mlx-lm wrote, the weights of norms have their offset."""
    return replace(config, norm_offset=0.0) if has_mlx_taps(tensors, "conv1d") else config


QWEN_3_5 = Architecture(
    ("qwen35",), ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"), from_hf, from_gguf, HF_NAMES,
    GGUF_NAMES, prefixes=_PREFIXES, gguf_tiled=True, completed=completed,
)  # fmt: skip


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The first GGUF files of Qwen3-Next have queries, keys, values and gates in one matrix."""
    if names.recurrent is None or "blk.0.ssm_in.weight" not in tensors:
        return names
    return replace(names, recurrent=replace(names.recurrent, input="ssm_in", gate=""))


QWEN_3_5_MIXTURE = Architecture(
    ("qwen35moe",),
    (
        "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
    ), from_hf_mixture, from_gguf_mixture, MIXTURE_NAMES, GGUF_NAMES,
    prefixes=_PREFIXES, gguf_tiled=True, completed=completed,
)  # fmt: skip
QWEN_3_NEXT = Architecture(
    ("qwen3next",), ("Qwen3NextForCausalLM",), from_hf_next, from_gguf_next, NEXT_NAMES, GGUF_NEXT,
    prefixes=("", "-"), adapt=_adapt, completed=completed,
)  # fmt: skip
