"""openPangu Embedded: Llama with biases in attention."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_hf(keys: Keys) -> ModelConfig:
    """`PanguEmbeddedForCausalLM`, under the original keys."""
    return ModelConfig(**hf_decoder(keys, bias=keys.flag("bias")))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`pangu-embedded`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "pangu-embedded"))


PANGU = Architecture(("pangu-embedded",), ("PanguEmbeddedForCausalLM",), from_hf, from_gguf, HF, GGUF)
