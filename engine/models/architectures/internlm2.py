"""InternLM 2: Llama under names of its own, with query, key and value in one matrix whose rows go by
key/value head.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, TensorNames
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

HF_NAMES = TensorNames(
    embed="model.tok_embeddings", norm="model.norm", head="output", layer="model.layers.{}.",
    attention_norm="attention_norm", query="", key="", value="", query_key_value="attention.wqkv",
    output="attention.wo", mlp_norm="ffn_norm", gate="feed_forward.w1", up="feed_forward.w3",
    down="feed_forward.w2", grouped=True,
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`InternLM2ForCausalLM`."""
    shape = hf_shape(keys)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    bias = keys.flag("bias", True)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"]),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=False,
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`internlm2`."""
    shape = gguf_shape(keys, tensors, "internlm2")
    return ModelConfig(**shape, rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True))


INTERNLM2 = Architecture(
    ("internlm2",), ("InternLM2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, turned_rows=True
)
