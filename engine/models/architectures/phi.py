"""Phi-3 and Phi-4: Llama with fused projections, longrope, rope on a part of each head, a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import gguf_decoder, hf_decoder, hf_windows
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(HF, query_key_value="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")
GGUF_NAMES = replace(GGUF, gate_up="ffn_up")


def from_hf(keys: Keys) -> ModelConfig:
    """`Phi3ForCausalLM`, also in the folders of Phi-4."""
    shape = hf_decoder(keys, bias=False, rms_norm_eps=1e-5, max_position_embeddings=4096)
    return ModelConfig(**shape, windows=hf_windows(keys, shape["layers"]))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`phi3`."""
    shape = gguf_decoder(keys, tensors, "phi3")
    return ModelConfig(**shape, windows=hf_windows(keys, shape["layers"], "attention.sliding_window"))


PHI = Architecture(("phi3",), ("Phi3ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
