"""Hunyuan (dense, of 2025): Llama with qk norm after rope, whose base is raised by a factor of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers import gguf_decoder, head_dimension, hf_decoder
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(HF, query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm")
_MOST_ALPHA = 1e9


def from_hf(keys: Keys) -> ModelConfig:
    """`HunYuanDenseV1ForCausalLM`."""
    keys = keys.over({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32})
    keys = keys.over({"intermediate_size": 11008, "vocab_size": 290943})
    shape = hf_decoder(
        _raised(keys),
        bias=keys.flag("attention_bias", False),
        rms_norm_eps=1e-5,
        max_position_embeddings=2048,
    )
    return ModelConfig(**shape, qk_norm="head", qk_norm_last=True)


def _raised(keys: Keys) -> Keys:
    """The "dynamic" scaling with an `alpha` multiplies the base by alpha^(dim / (dim - 2)), and no more."""
    for name in ("rope_parameters", "rope_scaling"):
        scaling = keys.table(name)
        if scaling is None or "dynamic" not in (scaling.raw("rope_type"), scaling.raw("type")):
            continue
        alpha = scaling.optional("alpha", 0.0, _MOST_ALPHA)
        width, heads = (
            keys.integer("hidden_size", 1, 1 << 20),
            keys.integer("num_attention_heads", 1, 1 << 14),
        )
        dim = head_dimension(keys, "head_dim", width, heads)
        if alpha and dim > 2:
            base = scaling.number("rope_theta", 1.0, 1e12, keys.number("rope_theta", 1.0, 1e12, 10000.0))
            base = min(base * alpha ** (dim / (dim - 2)), 1e12)
            return keys.replaced(name, {"rope_type": "default", "rope_theta": base})
    return keys


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hunyuan-dense`, whose base is raised in the file."""
    return ModelConfig(**gguf_decoder(keys, tensors, "hunyuan-dense"), qk_norm="head", qk_norm_last=True)


HUNYUAN = Architecture(("hunyuan-dense",), ("HunYuanDenseV1ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
