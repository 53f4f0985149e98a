"""Indexers, which choose the positions that attention looks at, and how they are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops
from engine.backends.indexer import IndexerShape
from engine.backends.states import PoolShape
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, linear_parts, norm
from engine.models.config import ModelConfig
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.layers.attention.head_scales import HeadScales, head_scales
from engine.models.layers.parts import Linear, Norm, Order, RopeTables
from engine.models.layers.recurrent.parts import Convolution
from engine.models.names import TensorNames
from engine.tensors import Floats

Chooser = Callable[[Ops, Array, Array, RopeTables], Array]
"""From x (T, E) and the latent of queries (T, R): the choice of positions for `Ops.attention`."""
Keys = Callable[[Ops, Array], Array]
"""From x (T, E): keys (T, D)."""


@dataclass(slots=True)
class LastChoice:
    """What the last layer with an indexer chose, for the layers that share it."""

    chosen: Array = None

    def __call__(self, ops: Ops, x: Array, latent: Array, tables: RopeTables) -> Array:
        return self.chosen


@dataclass(frozen=True, slots=True)
class NormedKeys:
    """Keys that are made of x and normed (T, D); with `pool`, those of the blocks that end at each
    position.
    """

    linear: Linear
    norm: Norm
    pool: Convolution | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        key = self.linear(ops, x)
        return self.norm(ops, self.pool(ops, key) if self.pool else key)


@dataclass(frozen=True, slots=True, eq=False)
class BlockKeys:
    """Keys of blocks of positions (T, D): part number `part` of the states, of `Ops.pool`, then the norm."""

    part: int
    shape: PoolShape
    values: tuple[Keys, ...]
    gates: tuple[Linear, ...]
    bias: Floats
    norm: Norm | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        values, gates = ([made(ops, x) for made in each] for each in (self.values, self.gates))
        key = ops.pool(self.part, values, gates, self.bias, self.shape)
        return self.norm(ops, key) if self.norm else key


@dataclass(frozen=True, slots=True)
class LayerIndexer:
    """A layer's indexer: a `Chooser` whose queries are made of attention's latent, if this has one, and whose
    keys and weights are made of x. The first numbers of queries and keys have rope, if it `rotates`.
    """

    layer: int
    shape: IndexerShape
    query: Linear
    keys: Keys
    weights: Linear | None
    interleaved: bool
    last: LastChoice
    query_norm: Norm | None = None
    input_norm: Norm | None = None
    scales: HeadScales | None = None
    rotates: bool = True

    def __call__(self, ops: Ops, x: Array, latent: Array, tables: RopeTables) -> Array:
        made_of = self.input_norm(ops, latent) if self.input_norm else latent
        query, key = self.query(ops, made_of), self.keys(ops, x)
        query = self.query_norm(ops, query) if self.query_norm else query
        query = self.scales(ops, query, tables) if self.scales else query
        if tables.main is not None and self.rotates:
            table = replace(tables.main, interleaved=self.interleaved)
            query = ops.rope(query, table, self.shape.heads)
            key = ops.rope(key, tables.pooled.get(self.shape.block, table), 1)
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
    rows = rope_first(shape, kind.rope_dim if own.rope_last else 0)
    query, key = (View(order=each, stored_rows=each.size) for each in (rows, rows[: shape.head_dim]))
    key_norm = norm(source, at + named.key_norm, shape.head_dim, own.norm_eps, layer_norm=True, bias=True)
    assert key_norm.bias is not None
    keys = NormedKeys(
        linear(source, at + named.key, shape.head_dim, config.width, False, key),
        replace(key_norm, weight=key_norm.weight[key.order], bias=key_norm.bias[key.order]),
    )
    return LayerIndexer(
        cached_keys_of(config, own, layer), shape,
        linear(source, at + named.query, shape.heads * shape.head_dim, rank, False, query),
        _gated(source, config, own, at, named, layer, keys) if own.pooling else keys,
        linear(source, at + named.weights, shape.heads, config.width, False), own.interleaved, last,
        input_norm=norm(source, at + named.input_norm, rank, own.norm_eps, layer_norm=True, bias=True)
        if named.input_norm
        else None,
        scales=head_scales(source, at, named.scales, shape.heads, shape.head_dim)
        if kind.head_scales
        else None,
        rotates=layer not in config.nope_layers,
    )  # fmt: skip


def rope_first(shape: IndexerShape, last: int) -> Order:
    """The rows of queries where the `last` ones of each head come first."""
    return np.roll(np.arange(shape.heads * shape.head_dim).reshape(shape.heads, -1), last, axis=1).reshape(-1)


def _gated(
    source: WeightSource, config: ModelConfig, own: Indexer, at: str, named: IndexerNames, layer: int,
    keys: NormedKeys,
) -> BlockKeys:  # fmt: skip
    """Keys of blocks, of those of their positions and gates."""
    dim, block = own.shape.head_dim, own.shape.block
    gates = Linear(source.matrix(at + named.gates, dim, config.width))
    bias = source.vector(at + named.bias, block, dim)[None]
    return BlockKeys(config.further_part(layer), PoolShape(dim, block), (keys,), (gates,), bias)


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
        cached_keys_of(config, own, layer), shape, query, NormedKeys(key, key_norm, pool), None,
        own.interleaved, last, replace(query_norm, heads=shape.heads),
    )  # fmt: skip


def cached_keys_of(config: ModelConfig, own: Indexer, layer: int) -> int:
    """The number of the keys of a layer's indexer among those of the cache, which follow attention's."""
    before = len(config.cached_layers) + len(config.block_layers)
    return before + sum(other < layer for other in own.layers)
