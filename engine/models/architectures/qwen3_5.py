"""Qwen 3.5 and 3.6 (dense): gated delta nets with full attention in every fourth layer, whose result a gate
multiplies. Vision and multi-token prediction are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.states import MOST_KEY_DIM
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import MAX_LAYERS, gguf_decoder, hf_decoder, hf_layer_types, recurrent_by_heads
from engine.models.keys import Keys
from engine.models.names import GGUF, HF, RecurrentNames
from engine.models.recurrent_config import DeltaNet
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF,
    recurrent=RecurrentNames(
        "linear_attn.in_proj_qkv", "linear_attn.out_proj", "linear_attn.conv1d", "linear_attn.in_proj_z",
        "linear_attn.in_proj_a", "linear_attn.in_proj_b", rate="linear_attn.A_log",
        shift="linear_attn.dt_bias", norm="linear_attn.norm",
    ),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    mlp_norm="post_attention_norm",
    attention_post="",
    recurrent=RecurrentNames(
        "attn_qkv", "ssm_out", "ssm_conv1d", "attn_gate", "ssm_alpha", "ssm_beta", rate="ssm_a",
        shift="ssm_dt.bias", norm="ssm_norm", gguf=True,
    ),
)  # fmt: skip
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """`Qwen3_5ForCausalLM`, and the text model of `Qwen3_5ForConditionalGeneration`."""
    keys = keys.inner("text_config").over({"num_key_value_heads": 4})
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), share=0.25, head_dim=256, max_position_embeddings=32768
    )
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    return ModelConfig(
        **shape,
        qk_norm="head",
        norm_offset=1.0,
        output_gate=True,
        recurrent=DeltaNet(
            keys.integer("linear_num_key_heads", 1, _MOST, 16),
            keys.integer("linear_num_value_heads", 1, _MOST, 32),
            keys.integer("linear_key_head_dim", 1, MOST_KEY_DIM, 128),
            keys.integer("linear_value_head_dim", 1, _MOST, 128),
            keys.integer("linear_conv_kernel_dim", 2, 64, 4),
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
    keys, recurrent = recurrent_by_heads(keys)
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    shape = gguf_decoder(keys.replaced("block_count", layers), tensors, "qwen35", share=0.25)
    groups = keys.integer("ssm.group_count", 1, _MOST)
    heads = keys.integer("ssm.time_step_rank", 1, _MOST)
    return ModelConfig(
        **shape,
        qk_norm="head",
        output_gate=True,
        recurrent=DeltaNet(
            groups,
            heads,
            keys.integer("ssm.state_size", 1, MOST_KEY_DIM),
            keys.integer("ssm.inner_size", heads, _MOST * heads) // heads,
            keys.integer("ssm.conv_kernel", 2, 64, 4),
            tiled=True,
        ),
        recurrent_layers=frozenset(layer for layer in recurrent if layer < layers)
        or _every_fourth(keys, layers),
    )


QWEN_3_5 = Architecture(
    ("qwen35",), ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"), from_hf, from_gguf, HF_NAMES,
    GGUF_NAMES, prefixes=("", "-model.language_model.", "-"),
)  # fmt: skip
