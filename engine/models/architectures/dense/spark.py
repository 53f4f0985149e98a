"""Spark X2.5: windows in three of four layers, each kind with a rope of its own, and a gate for each head of
attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    gguf_decoder,
    gguf_windows,
    hf_activation,
    hf_shape,
    hf_sliding,
)
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.headers.rope import gguf_unscaled_rope, rope_from_hf
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="model.embedding", query_key_value="self_attn.q_k_v_proj", output="self_attn.out_proj",
    output_gate="self_attn.g_proj",
)  # fmt: skip
GGUF_NAMES = replace(GGUF, output_gate="attn_gate")
_STEP = 4
_ONLY = {
    "headwise_attn_output_gate": True, "gate_attn_act_mode": "sigmoid", "attention_bias": False,
    "mlp_bias": False, "gsq_int4": False, "hadamard_spin": False, "dv_ssq": False,
    "selective_attention_preservation": False, "key_value_binding_sharpening": False,
}  # fmt: skip
"""What the original class can do otherwise."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Spark2_5ForCausalLM`."""
    for name, value in _ONLY.items():
        refuse_other(keys, name, value)
    keys = keys.over({"tie_word_embeddings": True, "hidden_act": "gelu", "rope_parameters": {}})
    shape: dict[str, Any] = hf_shape(
        keys, head_dim=256, num_key_value_heads=4, max_position_embeddings=1 << 20
    )
    rope, local = (
        rope_from_hf(keys, shape["head_dim"], share=1.0, layer_type=kind)
        for kind in ("full_attention", "sliding_attention")
    )
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=False, output_bias=False, mlp_bias=False,
        output_gate="head", windows=hf_sliding(keys, shape["layers"], 512, _STEP), rope=rope,
        rope_local=local,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`spark2_5`."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "spark2_5")
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    return ModelConfig(
        **shape, activation="gelu", output_gate="head",
        windows=gguf_windows(keys, shape["layers"], window, _STEP),
        rope_local=gguf_unscaled_rope(keys, shape["head_dim"]),
    )  # fmt: skip


SPARK_X_2_5 = Architecture(("spark2_5",), ("Spark2_5ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
