"""Indexers, which choose the positions that attention looks at, and how they are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.backends.base import Array, Ops
from engine.backends.indexer import IndexerShape
from engine.models.config import ModelConfig
from engine.models.indexer_config import Indexer
from engine.models.layers.head_scales import HeadScales, head_scales
from engine.models.layers.parts import Linear, Norm, Order, RopeTables
from engine.models.layers.recurrent_parts import Convolution
from engine.models.names import TensorNames
from engine.models.source import View, WeightSource, linear, linear_parts, norm

Chooser = Callable[[Ops, Array, Array, RopeTables], Array]
"""From x (T, E) and the latent of queries (T, R): the choice of positions for `Ops.attention`."""


@dataclass(slots=True)
class LastChoice:
    """What the last layer with an indexer chose, for the layers that share it."""

    chosen: Array = None

    def __call__(self, ops: Ops, x: Array, latent: Array, tables: RopeTables) -> Array:
        return self.chosen


@dataclass(frozen=True, slots=True)
class LayerIndexer:
    """A layer's indexer: a `Chooser` whose queries are made of attention's latent, if this has one, and whose
    key and weights are made of x. The first numbers of queries and keys have rope, if it `rotates`. With
    `pool`, what is normed and rotated are keys of the blocks that end at each position.
    """

    layer: int
    shape: IndexerShape
    query: Linear
    key: Linear
    key_norm: Norm
    weights: Linear | None
    interleaved: bool
    last: LastChoice
    query_norm: Norm | None = None
    pool: Convolution | None = None
    input_norm: Norm | None = None
    scales: HeadScales | None = None
    rotates: bool = True

    def __call__(self, ops: Ops, x: Array, latent: Array, tables: RopeTables) -> Array:
        made_of = self.input_norm(ops, latent) if self.input_norm else latent
        query, key = self.query(ops, made_of), self.key(ops, x)
        key = self.key_norm(ops, self.pool(ops, key) if self.pool else key)
        query = self.query_norm(ops, query) if self.query_norm else query
        query = self.scales(ops, query, tables) if self.scales else query
        if tables.main is not None and self.rotates:
            table = replace(tables.main, interleaved=self.interleaved)
            query = ops.rope(query, table, self.shape.heads)
            key = ops.rope(key, tables.pooled or table, 1)
        weights = self.weights(ops, x) if self.weights else None
        self.last.chosen = ops.top_keys(self.layer, query, key, weights, self.shape)
        return self.last.chosen


def latent_chooser(
    source: WeightSource, config: ModelConfig, at: str, names: TensorNames, layer: int, last: LastChoice
) -> Chooser | None:
    """What chooses for a layer of latent attention, whose tensors' names begin with `at`; None: it looks at
    all positions.
    """
    own, named = config.indexer, names.indexer
    if own is None or named is None or layer not in own.layers | own.sharing:
        return None
    if layer in own.sharing:
        return last
    kind = config.latent_of(layer)
    assert kind is not None
    shape, rank = own.shape, kind.query_rank or config.width
    rows = _rope_first(shape, kind.rope_dim if own.rope_last else 0)
    query, key = (View(order=each, stored_rows=each.size) for each in (rows, rows[: shape.head_dim]))
    key_norm = norm(source, at + named.key_norm, shape.head_dim, own.norm_eps, layer_norm=True, bias=True)
    assert key_norm.bias is not None
    return LayerIndexer(
        _cached(config, own, layer), shape,
        linear(source, at + named.query, shape.heads * shape.head_dim, rank, False, query),
        linear(source, at + named.key, shape.head_dim, config.width, False, key),
        replace(key_norm, weight=key_norm.weight[key.order], bias=key_norm.bias[key.order]),
        linear(source, at + named.weights, shape.heads, config.width, False), own.interleaved, last,
        input_norm=norm(source, at + named.input_norm, rank, own.norm_eps, layer_norm=True, bias=True)
        if named.input_norm
        else None,
        scales=head_scales(source, at, named.scales, shape.heads, shape.head_dim)
        if kind.head_scales
        else None,
        rotates=layer not in config.nope_layers,
    )  # fmt: skip


def _rope_first(shape: IndexerShape, last: int) -> Order:
    """The rows of queries where the `last` ones of each head come first."""
    return np.roll(np.arange(shape.heads * shape.head_dim).reshape(shape.heads, -1), last, axis=1).reshape(-1)


def block_chooser(
    source: WeightSource, config: ModelConfig, at: str, names: TensorNames, layer: int, last: LastChoice
) -> Chooser | None:
    """The same for attention whose indexer makes its queries of x and norms them (MiniMax-M3, Qwen 4)."""
    own, named = config.indexer, names.indexer
    if own is None or named is None or layer not in own.layers:
        return None
    shape, eps, offset, width = own.shape, config.norm_eps, config.norm_offset, config.width
    query_norm, key_norm = (
        norm(source, at + name, shape.head_dim, eps, layer_norm=False, bias=False, offset=offset)
        for name in (named.query_norm, named.key_norm)
    )
    rows = np.split(np.arange((shape.heads + 1) * shape.head_dim), [shape.heads * shape.head_dim])
    if named.query == named.key:
        query, key = linear_parts(source, at + named.query, (rows[0], rows[1]), width, False)
    else:
        query, key = (
            linear(source, at + name, len(each), width, False)
            for name, each in zip((named.query, named.key), rows, strict=True)
        )
    pool = None
    if own.pools:
        share = np.full((shape.block, shape.head_dim), 1 / shape.block, np.float32)
        pool = Convolution(config.further_part(layer), share, None)
    return LayerIndexer(
        _cached(config, own, layer), shape, query, key, key_norm, None, own.interleaved, last,
        replace(query_norm, heads=shape.heads), pool,
    )  # fmt: skip


def _cached(config: ModelConfig, own: Indexer, layer: int) -> int:
    """The number of the keys of a layer's indexer among those of the cache, which follow attention's."""
    return len(config.cached_layers) + sum(other < layer for other in own.layers)
