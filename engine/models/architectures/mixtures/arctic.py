"""Snowflake Arctic, from GGUF files: Llama with a plain feed-forward part in each layer, and experts that
read the layer's input past attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, gate="residual_mlp.w1", up="residual_mlp.w3", down="residual_mlp.w2", router="block_sparse_moe.gate"
)
"""For adapters, which are made for folders. Source: the converter's table of names."""
GGUF_NAMES = replace(GGUF, experts_norm="ffn_norm_exps")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`arctic`, whose plain part is as wide as a row, whatever the file says: that is of the experts."""
    shape = gguf_decoder(keys, tensors, "arctic", interleaved=True, handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape, past_attention=True)
    return ModelConfig(**shape | {"ffn_width": shape["width"]}, experts=experts)


ARCTIC = Architecture(("arctic",), (), None, from_gguf, HF_NAMES, GGUF_NAMES, interleaved_rows=True)
