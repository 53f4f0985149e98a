"""Attention whose queries and output projections are experts' (JetMoE, arXiv 2404.07413), and how its layers
are built.

Shape letters as in `engine.models.layers.parts`. Every expert has G heads, one for each key/value head.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.backends.routing import Routing
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.building.source import View, linear, linear_parts
from engine.models.layers.mixture import Mixture
from engine.models.layers.parts import Block, FeedForward, Linear, RopeTables
from engine.models.layers.vectors import same_rows
from engine.models.layers.whole import Blocks
from engine.tensors import Floats

_NORM_EPS = 1e-6
"""Of the norms of layers, whatever that of the last norm is."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpertAttention:
    """Attention of all experts' queries; of their `outputs`, `bias` (E,) plus those of a row's experts times
    their weights are the result. A head of keys has one query of each expert in turn.
    """

    layer: int
    shape: AttentionShape
    router: Linear
    routing: Routing
    queries: tuple[Weight, ...]
    key: Linear
    value: Linear
    outputs: tuple[Weight, ...]
    bias: Floats

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        shape, count, logits = self.shape, self.routing.experts, self.router(ops, x)
        groups, dim = shape.kv_heads, shape.head_dim
        q = ops.linear(x, self.queries[0])
        for weight in self.queries[1:]:
            q = ops.join(q, ops.linear(x, weight), groups)
        k, v = self.key(ops, x), self.value(ops, x)
        if tables.main is not None:
            q, k = ops.rope(q, tables.main, shape.heads), ops.rope(k, tables.main, groups)
        y = ops.attention(self.layer, q, k, v, shape)
        total = same_rows(ops, x, self.bias)
        total = total if residual is None else ops.add(residual, total)
        for expert, (weight, own) in enumerate(
            zip(self.outputs, np.eye(count, dtype=np.float32), strict=True)
        ):
            routes = ops.route(logits, self.routing, None, own)
            made = ops.linear(ops.columns(y, expert * dim, dim, groups), weight)
            total = ops.gather(ops.spread(made, routes), routes, total)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class WithBias:
    """What experts make, plus `bias` (E,)."""

    mixture: Mixture
    bias: Floats

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        bias = same_rows(ops, x, self.bias)
        return self.mixture(ops, x, bias if residual is None else ops.add(residual, bias))


def expert_attention_blocks(builder: Builder) -> Generator[int, None, Blocks]:
    """The layers; yields the number of finished ones."""
    config, blocks = builder.config, list[Block]()
    for layer in range(config.layers):
        at = builder.names.layer.format(layer)
        mixture = builder.mlp(layer, at)
        assert isinstance(mixture, Mixture)
        mlp: FeedForward = WithBias(mixture, builder.source.vector(at + "mlp.bias", config.width))
        names = builder.names.attention_norm, builder.names.mlp_norm
        first, second = (replace(builder.norm(at + name, config.width), eps=_NORM_EPS) for name in names)
        blocks.append(Block(_attention(builder, layer, at + "self_attention."), mlp, first, second))
        yield layer + 1
    return Blocks(tuple(blocks))


def _attention(builder: Builder, layer: int, at: str) -> ExpertAttention:
    source, config, own = builder.source, builder.config, at + "experts."
    experts, width, keys = config.experts, config.width, config.kv_heads * config.head_dim
    assert experts is not None
    count = experts.count
    rows = np.arange(2 * keys)
    key, value = linear_parts(source, at + "kv_proj", (rows[:keys], rows[keys:]), width, False)
    views = [View(expert, count) for expert in range(count)]
    return ExpertAttention(
        config.cache_layer(layer), config.shape(layer),
        linear(source, own + "router.layer", count, width, False), experts.routing,
        tuple(source.matrix(own + "input_linear.weight", keys, width, view) for view in views), key, value,
        tuple(source.matrix(own + "output_linear.weight", width, keys, view) for view in views),
        source.vector(own + "bias", width),
    )  # fmt: skip
