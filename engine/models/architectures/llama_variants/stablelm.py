"""StableLM 2: Llama with layer norms and rope on a quarter of each head; the larger sizes have qk norm and
parallel halves.
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

HF_NAMES = replace(HF, query_norm="self_attn.q_layernorm.norms.{}", key_norm="self_attn.k_layernorm.norms.{}")
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "qk_layer_norm": True}


def from_hf(keys: Keys) -> ModelConfig:
    """`StableLmForCausalLM`, and `StableLMEpochForCausalLM` of the first folders, under the original keys."""
    refuse_other(keys, "rotary_scaling_factor", 1.0)
    keys = keys.renamed(layer_norm_eps="norm_eps", partial_rotary_factor="rope_pct")
    shape = hf_decoder(
        keys, bias=keys.flag("use_qkv_bias", False), share=0.25, even=True,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5, max_position_embeddings=4096,
    )  # fmt: skip
    return ModelConfig(
        **shape | {"output_bias": False},
        **_QUIRKS,
        qk_norm="each" if keys.flag("qk_layernorm", False) else "none",
        placement="parallel" if keys.flag("use_parallel_residual", False) else "before",
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`stablelm`."""
    return ModelConfig(
        **gguf_decoder(keys, tensors, "stablelm", layer_norm=True),
        **_QUIRKS,
        qk_norm="each" if "blk.0.attn_q_norm.weight" in tensors else "none",
        placement="before" if "blk.0.ffn_norm.weight" in tensors else "parallel",
    )


STABLELM = Architecture(
    ("stablelm",), ("StableLmForCausalLM", "StableLMEpochForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF
)
