"""Baichuan: Llama with one matrix for queries, keys and values. The one of 40 layers (13B) has ALiBi instead
of rope. Baichuan 2 norms the rows of its head when it is loaded, and so does Baichuan M1, which convolves
keys and values and has windows, with other heads, in some layers.

Any number of layers but 40 has rope, as in the original code of 7B; llama.cpp gives a number that is neither
32 nor 40 no positions at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedKeys
from engine.models.headers.decoder import MAX_CONTEXT, gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, uneven
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.names import GGUF, HF, RecurrentNames
from engine.tensors import RawTensor

HF_NAMES = replace(HF, query_key_value="self_attn.W_pack")
M1_NAMES = replace(
    HF_NAMES, recurrent=RecurrentNames("", "", "", convolutions=("self_attn.conv_k", "self_attn.conv_v"))
)
_SECOND_VOCABULARY = 125696
_TAPS, _MOST_HEADS = 2, 1 << 14
_SLOPED_LAYERS = 40


def from_hf(keys: Keys) -> ModelConfig:
    """`BaichuanForCausalLM` and `BaiChuanForCausalLM`."""
    keys = keys.renamed(max_position_embeddings="model_max_length")
    shape = hf_decoder(keys, bias=False, max_position_embeddings=4096)
    return ModelConfig(**_sloped(shape), normed_head=shape["vocab_size"] == _SECOND_VOCABULARY)


def from_hf_m1(keys: Keys) -> ModelConfig:
    """`BaichuanM1ForCausalLM`."""
    refuse_other(keys, "conv_window", _TAPS)
    keys = keys.without("head_dim")
    shape: dict[str, Any] = hf_decoder(keys, bias=False, base=1e5, max_position_embeddings=32_768)
    layers, width, heads = shape["layers"], shape["width"], shape["heads"]
    sliding = frozenset(keys.integers("sliding_window_layers", 0, layers - 1))
    near = keys.integer("num_swa_attention_heads", 1, _MOST_HEADS, heads)
    near_groups = keys.integer("num_swa_key_value_heads", 1, _MOST_HEADS, shape["kv_heads"])
    for each in (heads, near):
        if width % each:
            raise uneven(each, width)
    own = [(near, near_groups) if layer in sliding else (heads, shape["kv_heads"]) for layer in range(layers)]
    window = keys.integer("sliding_window", 1, MAX_CONTEXT) if sliding else 0
    sizes = tuple((groups, width // each) for each, groups in own)
    return ModelConfig(
        **shape, layer_heads=sizes, layer_queries=tuple(each for each, _unused in own),
        windows=tuple(window if layer in sliding else 0 for layer in range(layers)) if sliding else (),
        rope_local=rope_from_hf(keys, width // near, base=1e5) if sliding else None,
        recurrent=ConvolvedKeys(tuple(groups * dim for groups, dim in sizes), _TAPS),
        recurrent_layers=frozenset(range(layers)), beside_attention=True, normed_head=True,
    )  # fmt: skip


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
BAICHUAN_M1 = Architecture((), ("BaichuanM1ForCausalLM",), from_hf_m1, None, M1_NAMES, None)
