"""Rotation, cache writes and attention: their nodes, and how they are recorded."""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.base import AttentionShape, RotaryTable
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Node, Producer, Recording, Value
from engine.backends.graph.rows import NormParams
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Rope(Value):
    """y = x from column `first` on, rotated by the step's positions, each head normed before where there is a
    norm.
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

    INPUTS = ("q",)
    layer: int
    q: Buffer
    shape: AttentionShape
    sinks: Floats | None
    distances: Floats | None


class AttentionOps(Recording):
    """Rotation and attention of `Ops`."""

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        assert not x.on_logit_rows
        self._table(table.cos)
        return self._add(Rope(x=x, table=table, heads=heads, y=x.like()))

    def attention(
        self, layer: int, q: Buffer, k: Buffer | None, v: Buffer | None, shape: AttentionShape,
        sinks: Floats | None = None, distances: Floats | None = None,
    ) -> Buffer:  # fmt: skip
        device = self._layer_devices[layer] if self._layer_devices else 0
        q = self._at(q, device)
        if k is not None:
            assert (v is None) == (shape.latent > 0)
            k, v = self._at(k, device), None if v is None else self._at(v, device)
            self.nodes.append(KvWrite(layer=layer, q=q, k=k, v=v, shape=shape))
        y = q.like(shape.heads * shape.value_dim)
        return self._add(Attention(layer=layer, q=q, shape=shape, sinks=sinks, distances=distances, y=y))
