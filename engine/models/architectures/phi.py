"""Phi-3 and Phi-4: Llama with fused projections, longrope, partial rotary positions and a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape, sliding
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = replace(HF, query_key_value="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")
GGUF_NAMES = replace(GGUF, gate_up="ffn_up")


def from_hf(keys: Keys) -> ModelConfig:
    """`Phi3ForCausalLM`, which Phi-4 is too."""
    shape = hf_shape(keys, rms_norm_eps=1e-5, max_position_embeddings=4096)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        windows=sliding(keys, shape["layers"]),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`phi3`."""
    shape = gguf_shape(keys, tensors, "phi3")
    return ModelConfig(
        **shape,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False),
        windows=sliding(keys, shape["layers"], "attention.sliding_window"),
    )


PHI = Architecture(("phi3",), ("Phi3ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
