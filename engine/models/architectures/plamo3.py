"""PLaMo 3: four norms, qk norm, windows with a rope of their own in seven of eight layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.gemma4 import gguf_local_rope
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, gguf_decoder, gguf_windows
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, layer="model.layers.layers.{}.", attention_norm="pre_mixer_norm", query="", key="", value="",
    query_key_value="mixer.qkv_proj", output="mixer.o_proj", query_norm="mixer.q_norm",
    key_norm="mixer.k_norm", attention_post="post_mixer_norm", mlp_norm="pre_mlp_norm",
    mlp_post="post_mlp_norm", gate="", up="", gate_up="mlp.gate_up_proj",
)  # fmt: skip
"""For adapters, which are made for folders. Source: the converter's table of names."""
GGUF_NAMES = replace(GGUF, gate_up="ffn_up", gate="")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`plamo3`."""
    shape = gguf_decoder(keys, tensors, "plamo3")
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    windows = gguf_windows(keys, shape["layers"], window, 8) if window else ()
    return ModelConfig(
        **shape, qk_norm="head", placement="both", windows=windows,
        rope_local=gguf_local_rope(keys, shape["head_dim"]) if window else None,
    )  # fmt: skip


PLAMO_3 = Architecture(("plamo3",), (), None, from_gguf, HF_NAMES, GGUF_NAMES)
