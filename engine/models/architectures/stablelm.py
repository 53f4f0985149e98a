"""StableLM 2: Llama with layer norms, a quarter of each head turned, and in its larger sizes norms of
heads and parallel halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = replace(HF, query_norm="self_attn.q_layernorm.norms.{}", key_norm="self_attn.k_layernorm.norms.{}")
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "query_key_rms": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`StableLmForCausalLM`."""
    shape = hf_shape(keys, max_position_embeddings=4096)
    shape["norm_eps"] = keys.number("layer_norm_eps", 0.0, 1.0, 1e-5)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    return ModelConfig(
        **shape,
        **_QUIRKS,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"], share=0.25),
        attention_bias=keys.flag("use_qkv_bias", False),
        output_bias=False,
        mlp_bias=False,
        query_key_norm="each" if keys.flag("qk_layernorm", False) else "none",
        placement="parallel" if keys.flag("use_parallel_residual", False) else "before",
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`stablelm`."""
    shape = gguf_shape(keys, tensors, "stablelm", layer_norm=True)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False, share=0.25),
        query_key_norm="each" if "blk.0.attn_q_norm.weight" in tensors else "none",
        placement="before" if "blk.0.ffn_norm.weight" in tensors else "parallel",
    )


STABLELM = Architecture(("stablelm",), ("StableLmForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
