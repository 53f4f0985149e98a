"""Builds the layers that look at pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from engine.models.building.attention import qk_norm
from engine.models.building.source import WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.layers.attention.cross import CrossBlock, CrossingBlocks
from engine.models.layers.parts import FeedForward, GatedMlp
from engine.models.layers.whole import Blocks, Stack
from engine.models.names import TensorNames

_MODULE = "cross_attn."
_GATES = "cross_attn_attn_gate", "cross_attn_mlp_gate"


def cross_block(
    source: WeightSource, config: ModelConfig, names: TensorNames, at: str, mlp: FeedForward, number: int
) -> CrossBlock:
    """The layer whose names begin with `at`, with its feed-forward part; `number` is as in `CrossBlock`."""
    shape, width, module = config.shape(0), config.width, at + _MODULE
    inner, groups = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    config = replace(config, qk_norm="head")
    query_norm, key_norm = (
        qk_norm(source, config, module + name, heads, shape.head_dim, "none")
        for name, heads in (("q_norm", shape.heads), ("k_norm", shape.kv_heads))
    )
    assert isinstance(mlp, GatedMlp)
    assert query_norm is not None
    assert key_norm is not None
    before, between = (
        norm(source, at + name, width, config.norm_eps, layer_norm=False, bias=False)
        for name in (names.attention_norm, names.mlp_norm)
    )
    first, second = (math.tanh(float(source.vector(at + name, 1)[0])) for name in _GATES)
    return CrossBlock(
        number, shape,
        query=linear(source, module + "q_proj", inner, width, False),
        key=linear(source, module + "k_proj", groups, width, False),
        value=linear(source, module + "v_proj", groups, width, False),
        output=linear(source, module + "o_proj", width, inner, False),
        query_norm=query_norm, key_norm=key_norm, attention_norm=before, mlp_norm=between, mlp=mlp,
        gates=(first, second),
    )  # fmt: skip


def with_crossing(stack: Stack, crossing: Mapping[int, CrossBlock]) -> CrossingBlocks:
    """The layers of a stack, with those that look at pictures in their places."""
    assert isinstance(stack, Blocks)
    blocks = [crossing.get(layer, block) for layer, block in enumerate(stack.blocks)]
    return CrossingBlocks(tuple(blocks), stack.lookups)
