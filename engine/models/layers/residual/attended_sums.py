"""Layers of which every few begin a new sum, and whose halves read a softmax over all sums so far (Kimi K3).

With n(x) = x / sqrt(mean(x^2) + eps), finished sums S_1 ... S_J, the present one S and a learned query q,
what is read is the sum over j of p_j S_j, S included, where p is the softmax of the q n(S_j). Shape letters
as in `engine.models.layers.parts`; J sums, Q queries of all halves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import field

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.layers.parts import Block, Norm, RopeTables
from engine.models.layers.residual.block_attention import Queries

_ATTENTION, _MLP, _LAST = "attn_res_score.weight", "ffn_res_score.weight", "output_res_score.weight"
"""The names of a layer's queries, after those of `TensorNames.layer`, and of the one before the head."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The finished sums of a pass so far, and their scores with all queries (T, J * Q), sum by sum."""

    norm: Norm
    every: Weight
    finished: tuple[Array, ...] = ()
    scores: Array | None = None

    def with_sum(self, ops: Ops, x: Array) -> Sums:
        """The same with one more, x (T, E)."""
        scores = ops.linear(self.norm(ops, x), self.every)
        scores = scores if self.scores is None else ops.join(self.scores, scores, 1)
        return Sums(self.norm, self.every, (*self.finished, x), scores)

    def read(self, ops: Ops, query: Queries, x: Array) -> Array:
        """What the query reads of all sums and of the present one, x (T, E)."""
        if self.scores is None:
            return x
        before = ops.columns(self.scores, query.first, 1, len(self.finished))
        scores = ops.join(before, ops.linear(self.norm(ops, x), query.own), 1)
        shares = ops.balance(scores, len(self.finished) + 1, 0, 0.0)
        return ops.mix((*self.finished, x), shares, 0)


@dataclass(frozen=True, slots=True)
class SumLayer:
    """A layer. It `begins` a new sum after what attention reads: what it makes is then alone in it."""

    begins: bool
    block: Block
    attention: Queries
    mlp: Queries

    def __call__(self, ops: Ops, x: Array, sums: Sums, tables: RopeTables) -> tuple[Array, Sums]:
        """The present sum (T, E), and the finished ones."""
        block = self.block
        mixer, mlp, first, second = block.attention, block.mlp, block.attention_norm, block.mlp_norm
        assert mixer is not None
        assert mlp is not None
        assert first is not None
        assert second is not None
        h = first(ops, sums.read(ops, self.attention, x))
        if self.begins:
            sums, x = sums.with_sum(ops, x), mixer(ops, h, tables)
        else:
            x = mixer(ops, h, tables, residual=x)
        return mlp(ops, second(ops, sums.read(ops, self.mlp, x)), residual=x), sums


@dataclass(frozen=True, slots=True)
class SumStack:
    """All layers, and what is read of all sums after them."""

    layers: tuple[SumLayer, ...]
    norm: Norm
    every: Weight
    last: Queries
    lookups: Sequence[Weight] = field(default=())

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        sums = Sums(self.norm, self.every)
        for layer in self.layers:
            x, sums = layer(ops, x, sums, tables)
        return sums.read(ops, self.last, x)


# -- building


def attended_sums(builder: Builder) -> Generator[int, None, SumStack]:
    """All layers; yields the number of finished ones after each."""
    config, source, width = builder.config, builder.source, builder.config.width
    names = [builder.names.at(layer) + half for layer in range(config.layers) for half in (_ATTENTION, _MLP)]
    vectors = np.stack([source.vector(name, width) for name in (*names, _LAST)])
    queries = [Queries(source.constant(vectors[at : at + 1]), at) for at in range(len(vectors))]
    layers = list[SumLayer]()
    for layer in range(config.layers):
        begins = layer % config.residual_block == 0
        layers.append(SumLayer(begins, builder.block(layer), queries[2 * layer], queries[2 * layer + 1]))
        yield layer + 1
    norm = Norm(np.ones(width, np.float32), config.norm_eps)
    return SumStack(tuple(layers), norm, source.constant(vectors), queries[-1])
