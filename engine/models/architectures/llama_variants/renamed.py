"""Llama under other names: Aquila 2, the first InternLM, IQuest Coder, K2 Horizon, TeleChat 3."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


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


def from_gguf_horizon(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`k2-horizon`, with halves in rope."""
    return ModelConfig(**gguf_decoder(keys, tensors, "k2-horizon"))


RENAMED = Architecture(
    (), ("AquilaForCausalLM", "AquilaModel", "IQuestCoderForCausalLM", "TeleChat3ForCausalLM"), from_hf,
    None, HF, None,
)  # fmt: skip
INTERNLM = Architecture((), ("InternLMForCausalLM",), from_hf_internlm, None, HF, None)
K2_HORIZON = Architecture(("k2-horizon",), ("K2HorizonForCausalLM",), from_hf, from_gguf_horizon, HF, GGUF)
