"""Chameleon (arXiv 2405.09818) as text alone: Llama with a layer norm of every head's
queries and keys, in the larger model with norms after each half of a block. Its tokens of pictures are never
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(HF, attention_post="input_layernorm", mlp_post="post_attention_layernorm")
GGUF_NAMES = replace(GGUF, attention_post="attn_norm", mlp_post="ffn_norm")
_PICTURES = 4, 8196
_QK_EPS = 1e-5


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`chameleon`."""
    return _config(keys, gguf_decoder(keys, tensors, "chameleon", interleaved=True), _PICTURES)


def from_hf(keys: Keys) -> ModelConfig:
    """`ChameleonForConditionalGeneration`."""
    keys = keys.over({
        "vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
    })  # fmt: skip
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    shape = hf_decoder(keys.without("head_dim"), bias=bias, mlp_bias=mlp_bias)
    tokens = keys.table("vocabulary_map") or Keys({}, "config.json")
    pictures = sorted(
        tokens.integer(name, 0, shape["vocab_size"] - 1)
        for name in tokens.source
        if name.startswith("IMGIMG")
    )
    if pictures and pictures[-1] - pictures[0] != len(pictures) - 1:
        refuse_other(keys.replaced("vocabulary_map", pictures[:8]), "vocabulary_map", None)
    return _config(keys, shape, (pictures[0], pictures[-1] + 1) if pictures else (0, 0))


def _config(keys: Keys, shape: dict[str, Any], silent: tuple[int, int]) -> ModelConfig:
    return ModelConfig(
        **shape, placement="after" if keys.flag("swin_norm", False) else "before", qk_norm="each",
        qk_layer_norm=True, qk_norm_eps=_QK_EPS, silent_tokens=silent,
    )  # fmt: skip


CHAMELEON = Architecture(
    ("chameleon",), ("ChameleonForConditionalGeneration",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    prefixes=("", "-"), interleaved_rows=True,
)  # fmt: skip
