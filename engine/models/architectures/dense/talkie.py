"""Talkie: norms without weights, also of embeddings and of queries and keys after rope; each layer adds the
embedding once more.

Source: llama.cpp's `talkie.cpp` and its converter. The authors publish no folder of the usual form.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.layers.whole import Stack
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

GGUF_NAMES = replace(GGUF, embed_norm="", layer_scale="layer_output_scale.weight")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`talkie`."""
    return ModelConfig(
        **gguf_decoder(keys, tensors, "talkie", handled=("logit_scale",)),
        norm_weights=False,
        embed_norm=True,
        qk_norm="bare",
        qk_norm_last=True,
        logit_scale=keys.number("logit_scale", 1e-6, 1e6),
    )


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.residual.embed_skip import skipping_blocks

    return skipping_blocks(builder)


TALKIE = Architecture(("talkie",), (), None, from_gguf, HF, GGUF_NAMES, layers=_stack)
