"""Multi-head latent attention (arXiv 2405.04434) in its absorbed form, and how it is built from a file's
tensors.

Every head's key and value are products of one latent, which is all that is cached besides the part of the key
with rope. Instead of expanding cached latents, a head's query is multiplied by the transpose of its key
matrix, and the weighted sum of latents by its value matrix. Attention then has one key head, whose first
columns are its values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, linear_parts, norm
from engine.models.config import ModelConfig
from engine.models.config.latent import LatentAttention
from engine.models.layers.attention.head_scales import HeadScales, head_scales
from engine.models.layers.attention.indexer import Chooser, LastChoice, latent_chooser
from engine.models.layers.parts import Linear, Norm, Order, RopeTables
from engine.models.names import LatentNames, TensorNames
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class LatentMixer:
    """Latent attention over the cache, then the output projection: normed x (T, E) -> (T, E).

    `key_up` and `value_up` are matrices for each head, (rank, nope) and (value, rank). The sigmoid of `gate`
    multiplies the result before the projection. With `gate_of_queries` it reads what queries are made of,
    which then is their latent twice: normed, and as it is. `sinks` are those of `Ops.attention`. `rope` is
    the name of a table, `key_norm` stands before the rope of the key. Without `latent` keys are those that
    another layer has written; queries and keys without rope lack the linears of that part.
    """

    layer: int
    shape: AttentionShape
    query_down: Linear | None
    query_norm: Norm | None
    query: Linear
    query_rope: Linear | None
    latent: Linear | None
    latent_norm: Norm | None
    key_rope: Linear | None
    key_up: tuple[Weight, ...]
    value_up: tuple[Weight, ...]
    output: Linear
    gate: Linear | None = None
    gate_of_queries: bool = False
    sinks: Floats | None = None
    key_norm: Norm | None = None
    rope: str = "main"
    chooser: Chooser | None = None
    scales: HeadScales | None = None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        heads, latent = self.shape.heads, self.latent(ops, x) if self.latent else None
        latent = self.latent_norm(ops, latent) if self.latent_norm else None
        key, wide, normed, gated = self.key_rope(ops, x) if self.key_rope else None, x, x, x
        if self.query_down is not None:
            plain = self.query_down(ops, x)
            wide = normed = self.query_norm(ops, plain) if self.query_norm else plain
            if self.gate_of_queries:
                wide = gated = ops.join(wide, plain, 1)
        query, rotated = self.query(ops, wide), self.query_rope(ops, wide) if self.query_rope else None
        key, table = self.key_norm(ops, key) if self.key_norm else key, tables.table(self.rope)
        if table is not None and rotated is not None:
            rotated = ops.rope(rotated, (tables.queries or table) if self.rope == "main" else table, heads)
            key = key if key is None else ops.rope(key, table, 1)
        if tables.unrotated is not None:
            query = ops.rope(query, tables.unrotated, heads)
        query = ops.head_linear(query, self.key_up)
        query = query if rotated is None else ops.join(query, rotated, heads)
        query = self.scales(ops, query, tables) if self.scales else query
        key = latent if key is None else ops.join(latent, key, 1)
        chosen = self.chooser(ops, x, normed, tables) if self.chooser else None
        y = ops.attention(self.layer, query, key, None, self.shape, self.sinks, chosen=chosen)
        y = ops.head_linear(y, self.value_up)
        if self.gate is not None:
            y = ops.gated(self.gate(ops, gated), y, "sigmoid")
        return self.output(ops, y, residual)


# -- building


@dataclass(frozen=True, slots=True)
class LatentSource:
    """The tensors of one layer, whose names begin with `at`."""

    source: WeightSource
    at: str
    names: TensorNames

    @property
    def own(self) -> LatentNames:
        """The names of latent attention's tensors."""
        assert self.names.latent is not None
        return self.names.latent

    def linear(self, name: str, rows: int, columns: int, bias: bool | None) -> Linear:
        """A whole matrix."""
        return linear(self.source, self.at + name, rows, columns, bias)

    def parts(
        self, name: str, orders: tuple[Order, ...], columns: int, bias: bool | None
    ) -> tuple[Linear, ...]:
        """Linears, each with these rows of one matrix."""
        return linear_parts(self.source, self.at + name, orders, columns, bias)

    def head_gate(self, heads: int, dim: int, width: int) -> Linear:
        """A number of a head, made as often as the head's result has numbers."""
        view = View(order=np.repeat(np.arange(heads), dim), stored_rows=heads)
        return linear(self.source, self.at + self.names.output_gate, heads * dim, width, False, view)

    def norm(self, name: str, size: int, kind: LatentAttention, scale: float = 1.0) -> Norm:
        """The norm of a latent, whose result is multiplied by `scale`."""
        made = norm(self.source, self.at + name, size, kind.norm_eps, layer_norm=False, bias=False)
        return made if scale == 1.0 else replace(made, weight=made.weight * np.float32(scale))

    def up(self, count: int, kind: LatentAttention) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
        """Of each of `count` heads the matrices of its query and of its value, from stacks or one matrix."""
        heads, own = range(count), self.own
        if own.key_up and self.source.has(self.at + own.key_up + ".weight"):
            stacked = [View(head, count) for head in heads]
            return (
                tuple(self._matrix(own.key_up, kind.rank, kind.nope_dim, view) for view in stacked),
                tuple(self._matrix(own.value_up, kind.value_dim, kind.rank, view) for view in stacked),
            )
        keys, values = head_rows(count, kind.nope_dim, kind.value_dim)
        stored = keys.size + values.size
        views = [
            View(order=keys.reshape(count, -1)[head], stored_rows=stored, flipped=True) for head in heads
        ]
        others = [View(order=values.reshape(count, -1)[head], stored_rows=stored) for head in heads]
        return (
            tuple(self._matrix(own.up, kind.rank, kind.nope_dim, view) for view in views),
            tuple(self._matrix(own.up, kind.value_dim, kind.rank, view) for view in others),
        )

    def _matrix(self, name: str, rows: int, columns: int, view: View) -> Weight:
        return self.source.matrix(self.at + name + ".weight", rows, columns, view)


def latent_mixer(
    layer: LatentSource, config: ModelConfig, kind: LatentAttention, number: int, last: LastChoice
) -> LatentMixer:
    """The attention of layer `number`."""
    own, names, width, heads = layer.own, layer.names, config.width, config.queries_of(number)
    down, normed, columns, bias = None, None, width, config.attention_bias
    name, up_bias = names.query, False
    if kind.query_rank:
        down = layer.linear(own.query_down, kind.query_rank, width, bias)
        normed = layer.norm(own.query_norm, kind.query_rank, kind, kind.scales[0])
        columns, name = kind.query_rank, own.query_up
    of_queries = config.output_gate == "queries"
    made = layer.parts(
        name, _query_rows(config, kind, heads), 2 * columns if of_queries else columns, up_bias
    )
    query, query_rope, gates = made[0], made[1] if kind.rope_dim else None, made[2 if kind.rope_dim else 1 :]
    if config.output_gate == "head":
        gates = (layer.head_gate(heads, kind.value_dim, width),)
    if config.output_gate == "row":
        gates = (layer.linear(names.output_gate, heads * kind.value_dim, width, False),)
    is_source = config.kv_layer(number) == number
    downs = layer.parts(own.down, _down_rows(kind), width, bias) if is_source else ()
    key_up, value_up = layer.up(heads, kind)
    return LatentMixer(
        config.cache_layer(number), config.shape(number), down, normed, query, query_rope,
        downs[0] if downs else None,
        layer.norm(own.norm, kind.rank, kind, kind.scales[1]) if downs else None,
        downs[1] if len(downs) > 1 else None, key_up, value_up,
        layer.linear(names.output, width, heads * kind.value_dim, config.output_bias),
        gates[0] if gates else None, of_queries,
        layer.source.vector(layer.at + names.sinks, heads) if config.sinks else None,
        layer.norm(own.key_norm, kind.rope_dim, kind) if kind.key_norm else None,
        "none" if number in config.nope_layers else "local" if config.has_local_rope(number) else "main",
        latent_chooser(layer.source, config, layer.at, names, number, last),
        head_scales(layer.source, layer.at, own.scales, heads, kind.rank + kind.rope_dim)
        if kind.head_scales
        else None,
    )  # fmt: skip


def head_rows(heads: int, *widths: int) -> tuple[Order, ...]:
    """The rows of a matrix that has these rows of each head in turn."""
    rows = np.arange(heads * sum(widths)).reshape(heads, -1)
    return tuple(part.reshape(-1) for part in np.split(rows, np.cumsum(widths)[:-1], axis=1))


def _query_rows(config: ModelConfig, kind: LatentAttention, heads: int) -> tuple[Order, ...]:
    """The rows of queries without rope, with rope, and of the gate that their matrix may make."""
    gate = (kind.value_dim,) if config.output_gate == "queries" else ()
    return head_rows(heads, kind.nope_dim, *(size for size in (kind.rope_dim, *gate) if size))


def _down_rows(kind: LatentAttention) -> tuple[Order, ...]:
    """The rows of the latent and of the part of the key with rope."""
    return head_rows(1, *(size for size in (kind.rank, kind.rope_dim) if size))


def latent_orders(config: ModelConfig, layer: int) -> dict[str, tuple[Order, ...]]:
    """The rows of the linears of a layer's matrix that is held in several (`PARTS`), by fields of
    `LatentNames`; "query" stands for that of queries without a latent of their own.
    """
    kind = config.latent_of(layer)
    if kind is None:
        return {}
    queries = _query_rows(config, kind, config.queries_of(layer))
    return {"query_up" if kind.query_rank else "query": queries, "down": _down_rows(kind)}
