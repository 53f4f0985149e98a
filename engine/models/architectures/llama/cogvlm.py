"""CogVLM and CogVLM2: Llama with one matrix of queries, keys and values. Each layer has further matrices for
pictures, which texts do not use.

Source: `modeling_cogvlm.py` of the original folders, llama.cpp's `cogvlm.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, query_key_value="self_attn.language_expert_query_key_value", output="self_attn.language_expert_dense",
    gate="mlp.language_mlp.gate_proj", up="mlp.language_mlp.up_proj", down="mlp.language_mlp.down_proj",
)  # fmt: skip
_BASES = 1e4, 5e5
"""Of rope, which config.json does not state: CogVLM's, and that of CogVLM2, whose heads share keys."""


def from_hf(keys: Keys) -> ModelConfig:
    """`CogVLMForCausalLM`."""
    shared = keys.raw("num_multi_query_heads") is not None
    keys = keys.renamed(num_key_value_heads="num_multi_query_heads")
    return ModelConfig(**hf_decoder(keys, bias=False, base=_BASES[shared]))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`cogvlm`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "cogvlm"))


COG_VLM = Architecture(("cogvlm",), ("CogVLMForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
