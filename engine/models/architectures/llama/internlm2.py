"""InternLM 2: Llama under other names; query, key and value are one matrix, whose rows are grouped by
key/value head.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = TensorNames(
    embed="model.tok_embeddings", norm="model.norm", head="output", layer="model.layers.{}.",
    attention_norm="attention_norm", query="", key="", value="", query_key_value="attention.wqkv",
    output="attention.wo", mlp_norm="ffn_norm", gate="feed_forward.w1", up="feed_forward.w3",
    down="feed_forward.w2", grouped=True,
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`InternLM2ForCausalLM`."""
    return ModelConfig(**hf_decoder(keys, bias=keys.flag("bias", True)))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`internlm2`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "internlm2", interleaved=True))


INTERNLM2 = Architecture(
    ("internlm2",), ("InternLM2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, interleaved_rows=True
)
