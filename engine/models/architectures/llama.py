"""Llama, SmolLM2, TinyLlama, Yi, Mistral and everything else of exactly this shape, Mixtral's experts in
GGUF files included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.architectures.experts import gguf_experts
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape, sliding
from engine.models.keys import Keys
from engine.models.names import GGUF, HF, TensorNames
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf


def from_hf(keys: Keys) -> ModelConfig:
    """`LlamaForCausalLM` and `MistralForCausalLM`."""
    mistral = keys.source["architectures"][0] == "MistralForCausalLM"
    shape = (
        hf_shape(keys, num_key_value_heads=8)
        if mistral and not keys.has("num_key_value_heads")
        else hf_shape(keys)
    )
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = not mistral and keys.flag("attention_bias", False)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=not mistral and keys.flag("mlp_bias", False),
        # Mistral's own default is a window of 4096 where the key is absent; null means none.
        windows=sliding(keys, shape["layers"], default=4096) if mistral else (),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`llama`, which Mistral and Mixtral files say too."""
    shape = gguf_shape(keys, tensors, "llama", handled=("expert_count",))
    return ModelConfig(
        **shape,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True),
        windows=sliding(keys, shape["layers"], "attention.sliding_window"),
        experts=gguf_experts(keys, shape),
    )


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Mixtral's first GGUF files have tensors for each expert."""
    if "blk.0.ffn_gate.0.weight" not in tensors:
        return names
    return replace(names, expert_gate="ffn_gate.{}", expert_up="ffn_up.{}", expert_down="ffn_down.{}")


LLAMA = Architecture(
    ("llama",),
    ("LlamaForCausalLM", "MistralForCausalLM"),
    from_hf,
    from_gguf,
    HF,
    GGUF,
    prefixes=("", "-"),
    turned_rows=True,
    adapt=_adapt,
)
