"""CodeShell: GPT-2's layers with rope, several heads for each key and value, and layer norms with biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.gpt.gpt_bigcode import HF_NAMES
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.names import GGUF
from engine.tensors import RawTensor

_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}


def from_hf(keys: Keys) -> ModelConfig:
    """`CodeShellForCausalLM`, under the original keys."""
    positions = keys.text("position_embedding_type")
    if positions != "rope":
        raise unsupported("position_embedding_type", positions)
    keys = keys.renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        max_position_embeddings="n_positions", intermediate_size="n_inner", hidden_act="activation_function",
    )  # fmt: skip
    heads = keys.integer("num_attention_heads", 1, 1 << 14)
    grouped = keys.flag("group_query_attention", True)
    groups = keys.integer("num_query_groups", 1, heads) if grouped else heads
    shape = hf_decoder(
        keys.replaced("num_key_value_heads", groups), bias=True, mlp_bias=True, norm_eps="layer_norm_epsilon",
        activation="gelu_pytorch_tanh", layer_norm_epsilon=1e-5,
    )  # fmt: skip
    return ModelConfig(**shape, **_QUIRKS)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`codeshell`."""
    shape = gguf_decoder(keys, tensors, "codeshell", layer_norm=True)
    return ModelConfig(**shape, **_QUIRKS, activation="gelu_tanh")


CODE_SHELL = Architecture(("codeshell",), ("CodeShellForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
