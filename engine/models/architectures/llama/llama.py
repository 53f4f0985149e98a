"""Llama, SmolLM2, TinyLlama, Yi, Mistral and all others of this shape; also the GGUF files of Mixtral, which
name the same architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.llama import exaone, internlm3
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_architecture, hf_decoder, hf_sliding, hf_windows
from engine.models.headers.experts import gguf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

EMU_3 = {
    "vocab_size": 184622, "intermediate_size": 14336, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6, "max_position_embeddings": 9216,
}  # fmt: skip
"""What folders of Emu 3 leave out."""


def from_hf(keys: Keys) -> ModelConfig:
    """`LlamaForCausalLM`, `LLaMAForCausalLM` of the first conversions, `MistralForCausalLM`,
    `MinistralForCausalLM` and `Emu3ForCausalLM`.
    """
    name = hf_architecture(keys.source)
    if name not in ("LlamaForCausalLM", "LLaMAForCausalLM", "Emu3ForCausalLM"):
        return mistral_from_hf(keys)
    keys = keys.over(EMU_3) if name == "Emu3ForCausalLM" else keys
    kind = keys.raw("model_type")
    if kind in ("exaone", "internlm3"):
        return exaone.from_hf(keys) if kind == "exaone" else internlm3.from_hf(keys)
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    return ModelConfig(**hf_decoder(keys, bias=bias, mlp_bias=mlp_bias))


def mistral_from_hf(keys: Keys) -> ModelConfig:
    """`MistralForCausalLM`, and `MinistralForCausalLM` with windows in some layers."""
    defaults: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape = hf_decoder(keys, bias=False, max_position_embeddings=1 << 17, **defaults)
    # Mistral's default is a window of 4096 where the key is absent; null means none.
    return ModelConfig(**shape, windows=hf_sliding(keys, shape["layers"], 4096, 0))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`llama`, also in the files of Mistral and Mixtral. Its converter leaves windows out; a file that has
    `attention.sliding_window` runs with it as transformers does, where llama.cpp reads no such key.
    """
    shape = gguf_decoder(keys, tensors, "llama", interleaved=True, handled=("expert_count",))
    return ModelConfig(
        **shape,
        windows=hf_windows(keys, shape["layers"], "attention.sliding_window"),
        experts=gguf_experts(keys, shape),
    )


def from_hf_embedding(keys: Keys) -> ModelConfig:
    """`LlamaBidirectionalModel` of NVIDIA's Llama Embed Nemotron, whose attention sees the whole text."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    shape = hf_decoder(keys, bias=bias, mlp_bias=mlp_bias)
    return ModelConfig(**shape, bidirectional=True, headless=True)


def from_gguf_embedding(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`llama-embed`."""
    shape = gguf_decoder(keys, tensors, "llama-embed", interleaved=True)
    return ModelConfig(**shape, bidirectional=True, headless=True)


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The first GGUF files of Mixtral have a tensor for each expert; folders of EXAONE 3 have its names."""
    if exaone.HF_NAMES.embed + ".weight" in tensors:
        return exaone.HF_NAMES
    if "blk.0.ffn_gate.0.weight" not in tensors:
        return names
    return replace(names, expert_gate="ffn_gate.{}", expert_up="ffn_up.{}", expert_down="ffn_down.{}")


LLAMA = Architecture(
    ("llama",),
    ("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MinistralForCausalLM", "Emu3ForCausalLM"),
    from_hf,
    from_gguf,
    replace(HF, router="block_sparse_moe.gate"),  # Mixtral's, whose GGUF files name `llama`
    GGUF,
    prefixes=("", "-"),
    interleaved_rows=True,
    adapt=_adapt,
)
LLAMA_EMBEDDING = Architecture(
    ("llama-embed",), ("LlamaBidirectionalModel",), from_hf_embedding, from_gguf_embedding, HF, GGUF,
    prefixes=("-", ""), interleaved_rows=True,
)  # fmt: skip
