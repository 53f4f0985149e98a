"""BitNet b1.58 (arXiv 2402.17764): Llama with a norm more before the last matrix of each half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

_NAMES = ("bitnet", "bitnet-b1.58", "bitnet-25")
HF_NAMES = replace(HF, mixed_norm="self_attn.attn_sub_norm", inner_norm="mlp.ffn_sub_norm")
GGUF_NAMES = replace(GGUF, mixed_norm="attn_sub_norm", inner_norm="ffn_sub_norm")


def from_hf(keys: Keys) -> ModelConfig:
    """`BitNetForCausalLM`."""
    keys = keys if keys.has("num_key_value_heads") else keys.over({"num_key_value_heads": 5})
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), activation="relu2", base=500000.0, rms_norm_eps=1e-5,
    )  # fmt: skip
    return ModelConfig(**shape, inner_norms=True)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bitnet`, and as bitnet.cpp names newer models, whose activation is the square of relu."""
    scales = [name for name in tensors if name.endswith(".scale")]
    if scales:
        raise UnsupportedModel(
            _(
                "The model's matrices have scales apart from them ({scales}), which is not "
                "supported. Choose another file of it.",
                scales=scales[0],
            )
        )
    activation = "silu" if keys.has_prefix(_NAMES[0]) else "relu2"
    shape = gguf_decoder(keys, tensors, _NAMES[0])
    return ModelConfig(**shape, activation=activation, inner_norms=True)


BITNET = Architecture(_NAMES, ("BitNetForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
