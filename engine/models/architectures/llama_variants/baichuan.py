"""Baichuan: Llama with one matrix for queries, keys and values. The one of 40 layers (13B) has ALiBi instead
of rope. Baichuan 2 norms the rows of its head when it is loaded.

Any number of layers but 40 has rope, as in the original code of 7B; llama.cpp gives a number that is neither
32 nor 40 no positions at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(HF, query_key_value="self_attn.W_pack")
_SECOND_VOCABULARY = 125696
_SLOPED_LAYERS = 40


def from_hf(keys: Keys) -> ModelConfig:
    """`BaichuanForCausalLM` and `BaiChuanForCausalLM`."""
    keys = keys.renamed(max_position_embeddings="model_max_length")
    shape = hf_decoder(keys, bias=False, max_position_embeddings=4096)
    if shape["vocab_size"] == _SECOND_VOCABULARY:
        raise UnsupportedModel(
            _(
                "The model is Baichuan 2, whose head is normed when it is loaded, which is not supported. "
                "Choose another model."
            )
        )
    return ModelConfig(**_sloped(shape))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`baichuan`."""
    return ModelConfig(**_sloped(gguf_decoder(keys, tensors, "baichuan", interleaved=True)))


def _sloped(shape: dict[str, Any]) -> dict[str, Any]:
    if shape["layers"] != _SLOPED_LAYERS:
        return shape
    return shape | {"rope": None, "slopes": alibi_slopes(shape["heads"])}


BAICHUAN = Architecture(
    ("baichuan",), ("BaichuanForCausalLM", "BaiChuanForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF,
    interleaved_rows=True,
)  # fmt: skip
