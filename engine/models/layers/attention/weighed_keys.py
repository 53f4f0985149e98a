"""Attention whose scores have a number added that each key's value makes (dynamic mask attention, Doge).

Per key/value head, that is e^(rate softplus(step)), where a matrix makes the step of all values of a row. In
the cache it is part of the key: more numbers, whose product with those of the query it is. What is added is
less by 1, which changes no probabilities. Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.building.source import linear
from engine.models.layers.parts import Linear, RopeTables
from engine.models.layers.residual.residual_gates import product
from engine.models.layers.vectors import same_rows
from engine.models.layers.whole import Blocks
from engine.tensors import Floats

_DOUBLED = 3
MORE = 2**_DOUBLED
"""Numbers of a key that are added, all the same."""
_SHIFT = 30.0
"""e^_SHIFT sigmoid(x - _SHIFT) is e^x in float32 for x up to 13."""


@dataclass(frozen=True, slots=True)
class WeighedKeys:
    """`inner` is attention without what is added, `shape` that over the cache; `rate` is (G,)."""

    inner: Attention
    shape: AttentionShape
    step: Linear
    rate: Floats

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        inner, heads, groups = self.inner, self.shape.heads, self.shape.kv_heads
        dim = inner.shape.head_dim
        q, k, v = inner.inputs(ops, x)
        assert k is not None
        assert v is not None
        assert inner.query_norm is not None
        assert inner.key_norm is not None
        q, k, table = inner.query_norm(ops, q), inner.key_norm(ops, k), tables.table(inner.rope)
        if table is not None:
            q, k = ops.rope(q, table, heads), ops.rope(k, table, groups)
        added = ops.gated(steps := self.step(ops, v), same_rows(ops, steps, self.rate), "softplus")
        added = ops.add(added, same_rows(ops, steps, np.ones_like(self.rate)), -_SHIFT)
        added = ops.activate_with(added, "sigmoid", (math.exp(_SHIFT), -1.0))
        for _unused in range(_DOUBLED):
            added = ops.join(added, added, groups)
        more = ops.columns(q, 0, MORE, heads)
        share = np.full(heads * MORE, 1 / (MORE * self.shape.scale), np.float32)
        q, k = ops.join(q, same_rows(ops, more, share), heads), ops.join(k, added, groups)
        v = ops.join(v, ops.columns(v, 0, MORE, groups), groups)  # what follows a value may be anything
        y = ops.columns(ops.attention(inner.layer, q, k, v, self.shape), 0, dim, heads)
        return inner.output(ops, y, residual)


# -- building


def weighed_layers(builder: Builder) -> Generator[int, None, Blocks]:
    """All layers; each also multiplies what its halves are added to."""
    source, config, names = builder.source, builder.config, builder.names
    dim, blocks, recurrent = config.head_dim - MORE, [], names.recurrent
    assert recurrent is not None
    plain = Builder(source, replace(config, head_dim=dim, value_dim=0), names)
    for layer in range(config.layers):
        at, block = names.layer.format(layer), plain.block(layer)
        assert isinstance(block.attention, Attention)
        groups = config.kv_heads
        step = linear(source, at + recurrent.step, groups, groups * dim, config.attention_bias)
        rate = source.vector(at + recurrent.rate, groups)
        attention = WeighedKeys(block.attention, config.shape(layer), step, rate)
        keeps = (
            product(source.vector(at + name, config.width))
            for name in (names.attention_residual_gate, names.mlp_residual_gate)
        )
        blocks.append(replace(block, attention=attention, keeps=(next(keeps), next(keeps))))
        yield layer + 1
    return Blocks(tuple(blocks))
