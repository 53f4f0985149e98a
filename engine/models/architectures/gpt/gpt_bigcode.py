"""GPT-BigCode (StarCoder of 2023, SantaCoder): GPT-2 with one key and value for all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.gpt.gpt2 import HF_NAMES as GPT_2_NAMES
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(GPT_2_NAMES, transposed=False)
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False, "rope": None}
_DEFAULTS = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def from_hf(keys: Keys) -> ModelConfig:
    """`GPTBigCodeForCausalLM`."""
    keys = keys.over(_DEFAULTS).renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        max_position_embeddings="n_positions",
    )  # fmt: skip
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, 1 << 14)
    keys = keys.replaced("intermediate_size", keys.integer("n_inner", 1, 1 << 22, 4 * width))
    keys = keys.replaced("num_key_value_heads", 1 if keys.flag("multi_query", True) else heads)
    shape = hf_shape(keys, "layer_norm_epsilon", layer_norm_epsilon=1e-5, tie_word_embeddings=True)
    return ModelConfig(
        **shape,
        **_QUIRKS,
        learned_positions=shape["context_length"],
        attention_scale=0.0 if keys.flag("scale_attn_weights", True) else 1.0,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation=hf_activation(keys, "activation_function", "gelu_pytorch_tanh"),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`starcoder`."""
    shape = gguf_shape(keys, tensors, "starcoder", layer_norm=True)
    return ModelConfig(**shape, **_QUIRKS, activation="gelu_tanh", learned_positions=shape["context_length"])


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """With keys and values of each head, its queries, keys and values follow one another in a folder."""
    fused = tensors.get(names.layer.format(0) + "attn.c_attn.weight")
    separate = fused is not None and len(fused.shape) == 2 and fused.shape[0] == 3 * fused.shape[1]
    return replace(names, grouped=separate) if fused is not None else names


GPT_BIGCODE = Architecture(
    ("starcoder",), ("GPTBigCodeForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, prefixes=("", "-"),
    adapt=_adapt,
)  # fmt: skip
