"""Cosmos 3 Edge, text only: Llama with a plain feed-forward part of squared ReLUs. Its names of attention's
matrices are those of Cosmos 3 Omni, too, whose text model is Qwen 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(HF, gate="", up="mlp.fc1", down="mlp.fc2")
_DEFAULTS = {
    "vocab_size": 131072, "hidden_size": 2048, "intermediate_size": 9216, "num_hidden_layers": 28,
    "num_attention_heads": 16, "hidden_act": "relu2",
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `Cosmos3EdgeForConditionalGeneration`, whose head is never tied."""
    keys = keys.inner("text_config").over(_DEFAULTS)
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    # Null means as many key/value heads as query heads; an absent key, the class's default.
    groups: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=mlp_bias, base=1e8, head_dim=128, rms_norm_eps=1e-5,
        max_position_embeddings=131_072, **groups,
    )  # fmt: skip
    return ModelConfig(**shape | {"tied": False}, gated=False)


def named_as_made(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where the file has them."""
    if not any(name.endswith(".self_attn.to_q.weight") for name in tensors):
        return names
    plain: dict[str, Any] = {} if names.gate else {"up": "mlp.up_proj", "down": "mlp.down_proj"}
    return replace(
        names, query="self_attn.to_q", key="self_attn.to_k", value="self_attn.to_v",
        output="self_attn.to_out", query_norm="self_attn.norm_q", key_norm="self_attn.norm_k", **plain,
    )  # fmt: skip


COSMOS_3_EDGE = Architecture(
    (), ("Cosmos3EdgeForConditionalGeneration",), from_hf, None, HF_NAMES, None,
    prefixes=("-model.language_model.", "-"), adapt=named_as_made, untied=True,
)  # fmt: skip
