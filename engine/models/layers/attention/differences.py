"""Differential attention (arXiv 2410.05258) as DiffLlama has it, and how its layers are built.

Shape letters as in `engine.models.layers.parts`. A value of the cache is two heads' values, and a key is as
long, with zeros at its end.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, SeparateQkv
from engine.models.building.decoder import Builder
from engine.models.layers.parts import Block, Linear, Norm, RopeTables, scaled
from engine.models.layers.whole import Blocks


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """The normed results of the first half of the heads less `share` times those of the second."""

    layer: int
    shape: AttentionShape
    inputs: SeparateQkv
    output: Linear
    share: float
    norm: Norm

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        heads, groups, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim // 2
        q, k, v = self.inputs(ops, x)
        if tables.main is not None:
            q, k = ops.rope(q, tables.main, heads), ops.rope(k, tables.main, groups)
        q, k = ops.join(q, scaled(ops, q, 0.0), heads), ops.join(k, scaled(ops, k, 0.0), groups)
        half = groups // 2 * dim
        pairs = ops.join(ops.columns(v, 0, half), ops.columns(v, half, half), groups // 2)
        y = ops.attention(self.layer, q, k, ops.join(pairs, pairs, 1), self.shape)
        first, second = (ops.columns(y, part * heads * dim, heads * dim) for part in range(2))
        return self.output(ops, self.norm(ops, ops.add(first, second, -self.share)), residual)


def difference_blocks(builder: Builder) -> Generator[int, None, Blocks]:
    """The layers; yields the number of finished ones."""
    config, names, blocks = builder.config, builder.names, list[Block]()
    plain = replace(config, head_dim=config.head_dim // 2)
    for layer in range(config.layers):
        at = names.layer.format(layer)
        usual = Builder(builder.source, plain, names).block(layer)
        assert isinstance(usual.attention, Attention)
        assert isinstance(usual.attention.inputs, SeparateQkv)
        one, two = (_share(builder, at, number, plain.head_dim) for number in "12")
        first = 0.8 - 0.6 * math.exp(-0.3 * layer)
        norm = Norm(np.full(config.head_dim, 1 - first, np.float32), config.norm_eps, heads=config.heads // 2)
        attention = Differences(
            config.cache_layer(layer), config.shape(layer), usual.attention.inputs, usual.attention.output,
            one - two + first, norm,
        )  # fmt: skip
        blocks.append(replace(usual, attention=attention))
        yield layer + 1
    return Blocks(tuple(blocks))


def _share(builder: Builder, at: str, number: str, dim: int) -> float:
    """exp(q k), of two learned vectors (D,)."""
    q, k = (builder.source.vector(f"{at}self_attn.lambda_{kind}{number}", dim) for kind in "qk")
    return float(np.exp(np.dot(q, k).clip(-80, 80)))
