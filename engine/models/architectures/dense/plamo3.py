"""PLaMo 3: four norms, qk norm, windows with a rope of their own in seven of eight layers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma4 import gguf_local_rope
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    all_layers,
    gguf_decoder,
    gguf_windows,
    hf_shape,
    hf_sliding,
)
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.parts import Block, Norm
from engine.models.layers.positions.rope import RopeConfig
from engine.models.layers.whole import Blocks
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, layer="model.layers.layers.{}.", attention_norm="pre_mixer_norm", query="", key="", value="",
    query_key_value="mixer.qkv_proj", output="mixer.o_proj", query_norm="mixer.q_norm",
    key_norm="mixer.k_norm", attention_post="post_mixer_norm", mlp_norm="pre_mlp_norm",
    mlp_post="post_mlp_norm", gate="", up="", gate_up="mlp.gate_up_proj",
)  # fmt: skip
"""Source: the authors' `modeling_plamo.py`, and llama.cpp's converter."""
GGUF_NAMES = replace(GGUF, gate_up="ffn_up", gate="")
_STEP, _WINDOW, _FULL, _SLIDING = 8, 2048, "full_attention", "sliding_attention"
NORM_OFFSET, _POST_OFFSETS = 1.0, (1 / 5, 1 / 5**1.5)
"""What folders leave out of the weights of norms, and of those after attention and the feed-forward part."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Plamo3ForCausalLM`."""
    shape: dict[str, Any] = hf_shape(keys, head_dim=128)
    dim, layers = shape["head_dim"], shape["layers"]
    return ModelConfig(
        **shape, qk_norm="head", placement="both", norm_offset=NORM_OFFSET, attention_bias=False,
        output_bias=False, mlp_bias=False, windows=_windows(keys, layers),
        rope=rope_from_hf(keys, dim, base=1e6, layer_type=_FULL), rope_local=_local(keys, dim),
    )  # fmt: skip


def _windows(keys: Keys, layers: int) -> tuple[int, ...]:
    """Of each layer, where config.json lists them (null: none), else by one window and the pattern."""
    listed = keys.raw("sliding_window")
    if isinstance(listed, list):
        keys = keys.replaced("sliding_window", [each or 0 for each in listed])
        return all_layers(keys.integers("sliding_window", 0, MAX_CONTEXT), "sliding_window", layers)
    return hf_sliding(keys.renamed(sliding_window="window_size"), layers, _WINDOW, _STEP)


def _local(keys: Keys, dim: int) -> RopeConfig:
    """The rope of the layers with a window, which is not scaled."""
    table = keys.raw("rope_parameters")
    if not (isinstance(table, Mapping) and isinstance(table.get(_SLIDING), Mapping)):
        base = keys.number("rope_local_theta", 1.0, 1e12, 1e4)
        keys = keys.without("rope_parameters", "rope_scaling").replaced("rope_theta", base)
    return rope_from_hf(keys, dim, base=1e4, layer_type=_SLIDING)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`plamo3`."""
    shape = gguf_decoder(keys, tensors, "plamo3")
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    windows = gguf_windows(keys, shape["layers"], window, _STEP) if window else ()
    return ModelConfig(
        **shape, qk_norm="head", placement="both", windows=windows,
        rope_local=gguf_local_rope(keys, shape["head_dim"]) if window else None,
    )  # fmt: skip


def layers_between_norms(builder: Builder) -> Generator[int, None, Blocks]:
    """The layers of PLaMo 2 and 3; in folders the norms after a half have an offset each, in GGUF files none
    has one.
    """
    blocks = list[Block]()
    for layer in range(builder.config.layers):
        block = builder.block(layer)
        if builder.config.norm_offset:
            norms = [norm for norm in (block.attention_post, block.mlp_post) if isinstance(norm, Norm)]
            first, second = (
                replace(norm, weight=norm.weight + np.float32(offset - NORM_OFFSET))
                for norm, offset in zip(norms, _POST_OFFSETS, strict=True)
            )
            block = replace(block, attention_post=first, mlp_post=second)
        blocks.append(block)
        yield layer + 1
    return Blocks(tuple(blocks))


PLAMO_3 = Architecture(
    ("plamo3",), ("Plamo3ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, layers=layers_between_norms
)
