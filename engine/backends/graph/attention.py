"""Rotation, cache writes and attention: their nodes, and how they are recorded."""

from __future__ import annotations

from dataclasses import replace

from engine.backends.base import AttentionShape, RotaryTable
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Node, Producer, Recording, Value
from engine.backends.graph.rows import NormParams
from engine.backends.indexer import Beside, IndexerShape
from engine.backends.indexer_keys import cached_keys
from engine.backends.relative import RelativeBias
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Rope(Value):
    """y = x from column `first` on, rotated by the step's rope positions, each head normed before where there
    is a norm.
    """

    x: Buffer
    table: RotaryTable
    heads: int
    norm: NormParams | None = None
    first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class RopeGroup(Node):
    """Rotations of the same kind by one table: of queries and keys."""

    INPUTS = ()
    parts: tuple[Rope, ...]

    @property
    def device(self) -> int:
        return self.parts[0].device


@dataclass(frozen=True, eq=False, kw_only=True)
class KvWrite(Node):
    """Write k and v, from columns `k_first` and `v_first` on, to a layer's cache; q steers k's rounding.

    Latent attention has no v.
    """

    INPUTS = ("q", "k", "v")
    layer: int
    q: Buffer
    k: Buffer
    v: Buffer | None
    shape: AttentionShape
    k_first: int = 0
    v_first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention(Producer):
    """y = causal attention of q over a layer's cache."""

    INPUTS = ("q", "chosen", "relative", "row_sinks")
    layer: int
    q: Buffer
    shape: AttentionShape
    sinks: Floats | None
    distances: Floats | None
    chosen: Buffer | None = None
    """Lists of int32 positions in rising order, each for as many heads as the others."""
    lists: int = 1
    beside: int | None = None
    """The layer with the keys of `Beside`, of which those of the `chosen` positions count, or with none the
    last ones of blocks of `block`.
    """
    block: int = 1
    relative: Buffer | None = None
    """The weights of a `RelativeBias`, with its `profiles`."""
    profiles: Floats | None = None
    row_sinks: Buffer | None = None
    """Its `sinks`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossAttention(Producer):
    """y = attention of q over a layer of the cache that `KVCache.cross` is."""

    INPUTS = ("q",)
    layer: int
    q: Buffer
    shape: AttentionShape


@dataclass(frozen=True, eq=False, kw_only=True)
class TopKeys(Value):
    """y = the lists of positions that q and `weights` choose, over a layer's keys."""

    INPUTS = ("q", "weights")
    layer: int
    q: Buffer
    weights: Buffer | None
    shape: IndexerShape


@dataclass(frozen=True, eq=False)
class Choice:
    """What `top_keys` chose."""

    listed: Buffer
    lists: int


class AttentionOps(Recording):
    """Rotation and attention of `Ops`."""

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        assert not x.on_logit_rows
        assert table.cos.shape == table.sin.shape
        if not table.given:
            self._table(table.cos)
        self.rope_positions = min(self.rope_positions, len(table.cos))
        return self._add(Rope(x=x, table=table, heads=heads, y=x.like()))

    def attention(
        self, layer: int, q: Buffer, k: Buffer | None, v: Buffer | None, shape: AttentionShape,
        sinks: Floats | None = None, distances: Floats | None = None, chosen: Choice | None = None,
        beside: Beside | None = None, relative: RelativeBias | None = None,
    ) -> Buffer:  # fmt: skip
        device = self._layer_devices[layer] if self._layer_devices else 0
        q = self._at(q, device)
        if k is not None:
            assert (v is None) == (shape.latent > 0)
            k, v = self._at(k, device), None if v is None else self._at(v, device)
            self.nodes.append(KvWrite(layer=layer, q=q, k=k, v=v, shape=shape))
        y = q.like(shape.heads * shape.value_dim)
        made = Attention(layer=layer, q=q, shape=shape, sinks=sinks, distances=distances, y=y)
        if beside is not None:
            assert shape.latent
            assert not shape.chunked
            keys = self._at(beside.keys, device)
            self.nodes.append(KvWrite(layer=beside.layer, q=q, k=keys, v=None, shape=shape))
            made = replace(made, beside=beside.layer, block=beside.block)
        if chosen is not None:
            assert shape.heads % chosen.lists == 0
            made = replace(made, chosen=self._at(chosen.listed, device), lists=chosen.lists)
        if relative is not None:
            assert not shape.latent
            assert relative.weights.width == shape.heads * len(relative.profiles)
            weights = self._at(relative.weights, device)
            made = replace(made, relative=weights, profiles=relative.profiles)
        if relative is not None and relative.sinks is not None:
            assert sinks is None
            assert relative.sinks.width == shape.heads
            made = replace(made, row_sinks=self._at(relative.sinks, device))
        return self._add(made)

    def kv_write(self, layer: int, k: Buffer, v: Buffer, shape: AttentionShape) -> Buffer:
        device = self._layer_devices[layer] if self._layer_devices else 0
        k, v = self._at(k, device), self._at(v, device)
        self.nodes.append(KvWrite(layer=layer, q=k, k=k, v=v, shape=shape))
        return k

    def cross_attention(self, layer: int, q: Buffer, shape: AttentionShape) -> Buffer:
        q = self._at(q, self._cross_devices[layer] if self._cross_devices else 0)
        y = q.like(shape.heads * shape.head_dim)
        return self._add(CrossAttention(layer=layer, q=q, shape=shape, y=y))

    def top_keys(
        self, layer: int, q: Buffer, k: Buffer, weights: Buffer | None, shape: IndexerShape
    ) -> Choice:
        assert weights is None or not shape.each
        assert shape.pooled or not shape.ends
        assert q.width == shape.heads * shape.head_dim
        assert k.width == shape.head_dim
        device = self._layer_devices[layer] if self._layer_devices else 0
        q, k = self._at(q, device), self._at(k, device)
        self.nodes.append(KvWrite(layer=layer, q=q, k=k, v=None, shape=cached_keys(shape)))
        weights = None if weights is None else self._at(weights, device)
        y = q.like(shape.lists * shape.width)
        return Choice(self._add(TopKeys(layer=layer, q=q, weights=weights, shape=shape, y=y)), shape.lists)
