"""Attention over the cache, and what makes its queries, keys and values.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, norm
from engine.models.config import ModelConfig
from engine.models.layers.attention.indexer import Chooser
from engine.models.layers.parts import Linear, Mixer, Norm, Normed, RopeTables, bare_norm, scaled
from engine.tensors import Floats


class Inputs(Protocol):
    """What makes queries (T, H * D), and keys and values (T, G * D) or None, of a normed x (T, E)."""

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array | None, Array | None]: ...


@dataclass(frozen=True, slots=True)
class FusedQkv:
    """One matrix for query, key and value; `widths` are the columns of each."""

    linear: Linear
    widths: tuple[int, int, int]

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        y = self.linear(ops, x)
        q, k, v = self.widths
        return ops.columns(y, 0, q), ops.columns(y, q, k), ops.columns(y, q + k, v)


@dataclass(frozen=True, slots=True)
class SeparateQkv:
    """One matrix each for query, key and value."""

    query: Linear
    key: Linear
    value: Linear

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        return self.query(ops, x), self.key(ops, x), self.value(ops, x)


@dataclass(frozen=True, slots=True)
class KeysAsValues:
    """Values that are the keys, before norm and rope."""

    query: Linear
    key: Linear

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        query, key = self.query(ops, x), self.key(ops, x)
        return query, key, key


@dataclass(frozen=True, slots=True)
class QueryAlone:
    """The query of a layer that reads another one's keys and values."""

    query: Linear

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, None, None]:
        return self.query(ops, x), None, None


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention over the cache, then the output projection: normed x (T, E) -> (T, E).

    `rope` is "main", "local", "none" or "scaled", which only scales queries. `query_norm` and `key_norm` are
    applied before it, or after it with `norm_last`, `value_norm` to the values; `query_factors` multiply the
    queries last. The `activation` of `gate` multiplies the result before the projection; `result_norm` norms
    the result before the gate, and `gated_norm` after it. `clip` is the largest size of numbers in queries,
    keys and values; 0: any. Values of `value_dim` numbers (0: as many as keys have) are multiplied by
    `value_scale`; they are made as long as keys, and what follows of the result is left out.
    `sinks` and `distances` are those of `Ops.attention`.
    """

    layer: int
    shape: AttentionShape
    inputs: Inputs
    output: Linear
    rope: str = "main"
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    value_norm: Norm | None = None
    sinks: Floats | None = None
    distances: Floats | None = None
    gate: Normed | None = None
    activation: str = "sigmoid"
    norm_last: bool = False
    result_norm: Norm | None = None
    gated_norm: Norm | None = None
    query_factors: Norm | None = None
    clip: float = 0.0
    value_dim: int = 0
    value_scale: float = 1.0
    chooser: Chooser | None = None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        q, k, v = self.inputs(ops, x)  # (T, H * D), (T, G * D) twice
        if self.clip:
            q, k, v = (ops.activate_with(part, "clamp", (self.clip,)) for part in (q, k, v))
        if not self.norm_last:
            q, k = self._normed(ops, q, k)
        v = self.value_norm(ops, v) if self.value_norm else v
        v = None if v is None else self._values(ops, v)
        table = tables.table(self.rope)
        if table is not None:
            of_queries = tables.queries if self.rope == "main" and tables.queries is not None else table
            q = ops.rope(q, of_queries, self.shape.heads)
            k = None if k is None else ops.rope(k, table, self.shape.kv_heads)
        elif self.rope == "scaled" and tables.unrotated is not None:
            q = ops.rope(q, tables.unrotated, self.shape.heads)
        if self.norm_last:
            q, k = self._normed(ops, q, k)
        q = self.query_factors(ops, q) if self.query_factors else q
        chosen = self.chooser(ops, x, x, tables) if self.chooser else None
        y = ops.attention(self.layer, q, k, v, self.shape, self.sinks, self.distances, chosen)
        if self.value_dim:
            y = ops.columns(y, 0, self.value_dim, self.shape.heads)
        y = self.result_norm(ops, y) if self.result_norm else y
        if self.gate is not None:
            y = ops.gated(self.gate(ops, x), y, self.activation)
        y = self.gated_norm(ops, y) if self.gated_norm else y
        return self.output(ops, y, residual)

    def _values(self, ops: Ops, v: Array) -> Array:
        v = scaled(ops, v, self.value_scale)
        if not self.value_dim:
            return v
        groups = self.shape.kv_heads  # what follows a value may be anything: here its first numbers again
        return ops.join(v, ops.columns(v, 0, self.shape.head_dim - self.value_dim, groups), groups)

    def _normed(self, ops: Ops, q: Array, k: Array | None) -> tuple[Array, Array | None]:
        return self.query_norm(ops, q) if self.query_norm else q, self.key_norm(
            ops, k
        ) if self.key_norm else k


@dataclass(frozen=True, slots=True)
class BesideAttention:
    """The sum of a recurrent part and attention over the same input; each has factors of its input and its
    output.
    """

    recurrent: Mixer
    attention: Attention
    recurrent_scales: tuple[float, float]
    attention_scales: tuple[float, float]

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        (first, after_first), (second, after_second) = self.recurrent_scales, self.attention_scales
        y = self.recurrent(ops, scaled(ops, x, first), tables, residual if after_first == 1.0 else None)
        if after_first != 1.0:
            y = scaled(ops, y, after_first) if residual is None else ops.add(residual, y, after_first)
        into = scaled(ops, x, second)
        if after_second == 1.0:
            return self.attention(ops, into, tables, y)
        return ops.add(y, self.attention(ops, into, tables), after_second)


# -- building


def qk_norm(
    source: WeightSource, config: ModelConfig, name: str, heads: int, dim: int, rope: str
) -> Norm | None:
    """The norm of queries or keys: of "head" (D,), of "each" (heads, D), of "row" (heads * D,)."""
    kind = config.qk_norm
    if kind == "none" or (kind == "roped" and rope in ("none", "scaled")):
        return None
    if kind in ("bare", "roped"):
        return bare_norm(dim, config.norm_eps, heads)
    layer_norm = config.qk_layer_norm
    bias = config.norm_bias if layer_norm else False
    if kind == "row":
        return norm(source, name, heads * dim, config.norm_eps, layer_norm=layer_norm, bias=bias)
    if kind == "each":
        if "{}" in name:
            weight = np.concatenate([source.vector(name.format(i) + ".weight", dim) for i in range(heads)])
        else:
            full = name if source.has(name) else name + ".weight"  # PLaMo 2's folders lack the end
            weight = source.vector(full, heads, dim).reshape(-1)
        shift = name + ".bias"
        moved = source.vector(shift, heads, dim).reshape(-1) if source.has(shift) else None
        return Norm(weight, config.qk_norm_eps or config.norm_eps, moved, layer_norm, heads)
    made = norm(
        source, name, dim, config.norm_eps, layer_norm=layer_norm, bias=bias, offset=config.norm_offset
    )
    return Norm(made.weight, made.eps, made.bias, layer_norm, heads)
