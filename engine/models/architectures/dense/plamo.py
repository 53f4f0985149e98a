"""PLaMo 13B, whose halves have one input, normed once."""

from __future__ import annotations

from collections.abc import Mapping

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`plamo`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "plamo"), placement="parallel")


# No names of the original folders: adapters for these do not fit files, whose converter changes heads' order.
PLAMO = Architecture(("plamo",), (), None, from_gguf, HF, GGUF)
