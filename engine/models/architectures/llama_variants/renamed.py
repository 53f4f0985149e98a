"""Llama under other names: Aquila 2, the first InternLM, IQuest Coder, K2 Horizon, Lille, TeleChat 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

LILLE_NAMES = replace(
    HF, embed="transformer.tok_embeddings", norm="transformer.norm", head="transformer.lm_head",
    layer="transformer.layers.{}.", attention_norm="attention.norm", mlp_norm="feed_forward.norm",
    query_key_value="attention.qkv_proj", output="attention.out_proj", gate="feed_forward.gate_proj",
    up="feed_forward.up_proj", down="feed_forward.down_proj",
)  # fmt: skip
_LILLE = {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "n_kv_heads": 4, "block_size": 512, "vocab_size": 32_768,
    "layer_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
_MULTIPLE = 256


def from_hf(keys: Keys) -> ModelConfig:
    """`AquilaForCausalLM`, in the first folders `AquilaModel`; `IQuestCoderForCausalLM`;
    `K2HorizonForCausalLM`; `TeleChat3ForCausalLM`.
    """
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    return ModelConfig(**hf_decoder(keys, bias=bias, mlp_bias=mlp_bias))


def from_hf_internlm(keys: Keys) -> ModelConfig:
    """`InternLMForCausalLM`, whose rope has keys of its own."""
    rotary = keys.table("rotary")
    base = 10000.0 if rotary is None else rotary.number("base", 1.0, 1e12, 10000.0)
    keys = keys.over({"rope_theta": base, "tie_word_embeddings": False})
    bias = keys.flag("bias", True)
    return ModelConfig(**hf_decoder(keys, bias=bias) | {"output_bias": bias})


def from_hf_lille(keys: Keys) -> ModelConfig:
    """`LilleForCausalLM`, with interleaved rope, and 8/3 times as many features, rounded up, inside the
    feed-forward part.
    """
    keys = keys.over(_LILLE).renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        num_key_value_heads="n_kv_heads", max_position_embeddings="block_size",
    )  # fmt: skip
    inner = 8 * keys.integer("hidden_size", 1, 1 << 20) // 3
    keys = keys.replaced("intermediate_size", -(-inner // _MULTIPLE) * _MULTIPLE)
    return ModelConfig(**hf_decoder(keys, bias=False, norm_eps="layer_norm_eps", interleaved=True))


def from_gguf_horizon(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`k2-horizon`, with halves in rope."""
    return ModelConfig(**gguf_decoder(keys, tensors, "k2-horizon"))


RENAMED = Architecture(
    (), ("AquilaForCausalLM", "AquilaModel", "IQuestCoderForCausalLM", "TeleChat3ForCausalLM"), from_hf,
    None, HF, None,
)  # fmt: skip
INTERNLM = Architecture((), ("InternLMForCausalLM",), from_hf_internlm, None, HF, None)
K2_HORIZON = Architecture(("k2-horizon",), ("K2HorizonForCausalLM",), from_hf, from_gguf_horizon, HF, GGUF)
LILLE = Architecture((), ("LilleForCausalLM",), from_hf_lille, None, LILLE_NAMES, None)
