"""Compressed attention (DeepSeek V4): one head of keys that are their own values, over a window and, in one
softmax, over keys of blocks of positions.

Shape letters as in `engine.models.layers.parts`; R numbers of a key that have rope, the last ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, RotaryTable, Weight
from engine.backends.indexer import Beside
from engine.backends.states import PoolShape
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.config.compressed import CompressedAttention, CompressedNames
from engine.models.layers.attention.indexer import (
    BlockKeys,
    Chooser,
    LastChoice,
    LayerIndexer,
    cached_keys_of,
    rope_first,
)
from engine.models.layers.parts import Linear, Norm, Order, RopeTables, bare_norm
from engine.models.names import TensorNames
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class CompressedMixer:
    """Compressed attention, then the output projection: normed x (T, E) -> (T, E).

    `groups` are the matrices of the groups of heads. `rope` is the name of a table, `rope_dim` is R. With
    `blocks`, number `block_layer` of the cache has the keys of blocks, of which `chooser` chooses some.
    """

    layer: int
    shape: AttentionShape
    query_down: Linear
    query_norm: Norm
    query: Linear
    head_norm: Norm
    key: Linear
    key_norm: Norm
    groups: tuple[Weight, ...]
    output: Linear
    sinks: Floats
    rope: str
    rope_dim: int
    blocks: BlockKeys | None = None
    block_layer: int = 0
    chooser: Chooser | None = None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        heads, table = self.shape.heads, tables.table(self.rope)
        assert table is not None
        latent = self.query_norm(ops, self.query_down(ops, x))
        q = self._rotated(ops, self.head_norm(ops, self.query(ops, latent)), table, heads)
        k = self._rotated(ops, self.key_norm(ops, self.key(ops, x)), table, 1)
        beside = None
        if self.blocks is not None:
            block = self.blocks.shape.block
            keys = self._rotated(ops, self.blocks(ops, x), tables.pooled[block], 1)
            beside = Beside(self.block_layer, keys, block)
        chosen = self.chooser(ops, x, latent, tables) if self.chooser else None
        y = ops.attention(self.layer, q, k, None, self.shape, self.sinks, chosen=chosen, beside=beside)
        y = self._rotated(ops, y, tables.back[self.rope], heads)
        return self.output(ops, ops.head_linear(y, self.groups), residual)

    def _rotated(self, ops: Ops, x: Array, table: RotaryTable, heads: int) -> Array:
        """x (T, heads * D) with the last R numbers of each head rotated."""
        plain = self.shape.head_dim - self.rope_dim
        last = ops.rope(ops.columns(x, plain, self.rope_dim, heads), table, heads)
        return ops.join(ops.columns(x, 0, plain, heads), last, heads) if plain else last


# -- building


@dataclass(frozen=True, slots=True)
class _Layer:
    """The tensors of one layer, whose names begin with `at`."""

    source: WeightSource
    config: ModelConfig
    kind: CompressedAttention
    names: TensorNames
    at: str
    number: int

    @property
    def own(self) -> CompressedNames:
        assert self.names.compressed is not None
        return self.names.compressed

    def linear(
        self, name: str, rows: int, columns: int, order: Order | None = None, stored: int = 0
    ) -> Linear:
        """A matrix, or these of its `stored` rows."""
        view = View(order=order, stored_rows=stored)
        made = linear(self.source, self.at + name, rows, columns, False, view)
        if order is not None:  # no place of an adapter
            del self.source.linears[self.at + name]
        return made

    def norm(self, name: str, size: int) -> Norm:
        eps = self.config.norm_eps
        return norm(self.source, self.at + name, size, eps, layer_norm=False, bias=False)

    def blocks(
        self, names: tuple[str, str, str, str], part: int, shape: PoolShape, order: Order
    ) -> BlockKeys:
        """Keys of blocks, whose numbers are those of the file in this `order`. `names` are those of what
        makes keys and gates, of the bias, and of the norm.
        """
        keys, gates, bias, normed = names
        # In the file, what is for the block after comes first.
        orders = [order + shape.dim * at for at in reversed(range(shape.series))]
        stored, width = shape.series * shape.dim, self.config.width
        values, weights = (
            tuple(self.linear(name, shape.dim, width, rows, stored) for rows in orders)
            for name in (keys, gates)
        )
        added = self.source.vector(self.at + bias, shape.block, stored)
        made = self.norm(normed, shape.dim)
        return BlockKeys(
            part, shape, values, weights, np.stack([np.ascontiguousarray(added[:, rows]) for rows in orders]),
            replace(made, weight=np.ascontiguousarray(made.weight[order])),
        )  # fmt: skip


def compressed_mixer(
    source: WeightSource, config: ModelConfig, kind: CompressedAttention, names: TensorNames, at: str,
    number: int, last: LastChoice,
) -> CompressedMixer:  # fmt: skip
    """The attention of layer `number`, whose tensors' names begin with `at`."""
    layer = _Layer(source, config, kind, names, at, number)
    shape, width, own = config.shape(number), config.width, layer.own
    heads, dim, rank = shape.heads, shape.head_dim, kind.query_rank
    results, each = kind.groups * kind.output_rank, heads * dim // kind.groups
    views = [View(order=rows, stored_rows=results) for rows in np.arange(results).reshape(kind.groups, -1)]
    made = CompressedMixer(
        config.cache_layer(number), shape, layer.linear(own.query_down, rank, width),
        layer.norm(own.query_norm, rank), layer.linear(names.query, heads * dim, rank),
        bare_norm(dim, config.norm_eps, heads), layer.linear(names.key, dim, width),
        layer.norm(names.key_norm, dim),
        tuple(source.matrix(at + own.groups + ".weight", kind.output_rank, each, view) for view in views),
        layer.linear(names.output, width, results), source.vector(at + names.sinks, heads),
        "local" if config.has_local_rope(number) else "main", kind.rope_dim,
    )  # fmt: skip
    if not kind.blocks[number]:
        return made
    chooses = config.indexer is not None and number in config.indexer.layers
    part, pool = config.further_part(number), PoolShape(dim, kind.blocks[number], chooses)
    named = own.keys, own.gates, own.bias, own.norm
    return replace(
        made, blocks=layer.blocks(named, part, pool, np.arange(dim)),
        block_layer=len(config.cached_layers) + kind.layers.index(number),
        chooser=_chooser(layer, part + 1, last) if chooses else None,
    )  # fmt: skip


def _chooser(layer: _Layer, part: int, last: LastChoice) -> Chooser:
    """The indexer of a layer. Scores do not depend on the order of a key's numbers: those with rope, the last
    ones in the file, come first here.
    """
    config, own, named = layer.config, layer.config.indexer, layer.names.indexer
    assert own is not None
    assert named is not None
    shape = own.shape
    rows = rope_first(shape, layer.kind.rope_dim)
    order = rows[: shape.head_dim]
    pool = PoolShape(shape.head_dim, shape.block, overlapping=True)
    return LayerIndexer(
        cached_keys_of(config, own, layer.number), shape,
        layer.linear(named.query, len(rows), layer.kind.query_rank, rows, len(rows)),
        layer.blocks((named.key, named.gates, named.bias, named.key_norm), part, pool, order),
        linear(layer.source, layer.at + named.weights, shape.heads, config.width, False), own.interleaved,
        last,
    )  # fmt: skip
