"""PLM (arXiv 2503.12167): latent attention, whose queries have no latent, and squared relu without a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent
from engine.models.names import GGUF, HF, LATENT_GGUF, LATENT_HF
from engine.tensors import RawTensor


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`plm`."""
    keys, kind = gguf_latent(keys)
    shape = gguf_decoder(keys, tensors, "plm", interleaved=True)
    return ModelConfig(
        **shape | cache_shape(kind), attention_scale=kind.query_dim**-0.5, gated=False, activation="relu2"
    )


PLM = Architecture(
    ("plm",), (), None, from_gguf, replace(HF, gate="", latent=LATENT_HF), replace(GGUF, latent=LATENT_GGUF)
)
