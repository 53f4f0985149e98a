"""A second embedding of each token for every layer, and layers that add it (Gemma 3n, Gemma 4).

Shape letters as in `engine.models.layers.parts`; L layers, P numbers of a token for one layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.config.gemma import PerLayer
from engine.models.layers.parts import Block, Linear, Norm, RopeTables
from engine.models.layers.whole import Observe, unobserved
from engine.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class PerLayerEmbedding:
    """Rows of `table`, `scale` times, plus the normed projection of the embedding x (T, E): (T, L * P)."""

    table: Weight
    scale: float
    projection: Linear
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return ops.add(self.norm(ops, self.projection(ops, x)), ops.embed(self.table, self.scale))


@dataclass(frozen=True, slots=True)
class PerLayerGate:
    """The normed projection of activation(gate(x)) times columns of the second embedding, from `first` on."""

    first: int
    gate: Linear
    projection: Linear
    norm: Norm
    activation: str

    def __call__(self, ops: Ops, x: Array, second: Array) -> Array:
        mine = ops.columns(second, self.first, self.projection.weight.shape[1])
        return self.norm(ops, self.projection(ops, ops.gated(self.gate(ops, x), mine, self.activation)))


@dataclass(frozen=True, slots=True)
class ScaledBlock:
    """A block, then perhaps what `second` adds; the sum is multiplied by `factor`, if there is one."""

    block: Block
    second: PerLayerGate | None
    factor: float | None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, second: Array | None) -> Array:
        x = self.block(ops, x, tables)
        if self.second is not None and second is not None:
            x = ops.add(x, self.second(ops, x, second))
        return x if self.factor is None else ops.soft_cap(x, self.factor, 0.0)


@dataclass(frozen=True, slots=True)
class ScaledBlocks:
    """The layers of Gemma 4; see `engine.models.layers.parts.Stack`."""

    second: PerLayerEmbedding | None
    blocks: tuple[ScaledBlock, ...]

    @property
    def lookups(self) -> Sequence[Weight]:
        return () if self.second is None else (self.second.table,)

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        return self.observed(ops, x, tables, unobserved)

    def observed(self, ops: Ops, x: Array, tables: RopeTables, observe: Observe) -> Array:
        """As `Layered.observed`."""
        second = None if self.second is None else self.second(ops, x)
        x = observe(0, x)
        for layers, block in enumerate(self.blocks, 1):
            x = observe(layers, block(ops, x, tables, second))
        return x


# -- building


def scaled_blocks(
    source: WeightSource, config: ModelConfig, names: TensorNames, blocks: Sequence[Block]
) -> ScaledBlocks:
    """The blocks with the second embedding that the model has, and the factors of layers."""
    made = []
    for layer, block in enumerate(blocks):
        at = names.layer.format(layer)
        gate = per_layer_gate(source, config, names, layer) if config.per_layer is not None else None
        scale = at + names.layer_scale
        needed = source.has(scale) if config.layer_scale is None else config.layer_scale
        made.append(ScaledBlock(block, gate, float(source.vector(scale, 1)[0]) if needed else None))
    second = (
        None if config.per_layer is None else per_layer_embedding(source, config, names, config.per_layer)
    )
    return ScaledBlocks(second, tuple(made))


def per_layer_embedding(
    source: WeightSource, config: ModelConfig, names: TensorNames, second: PerLayer
) -> PerLayerEmbedding:
    """The table's rows are multiplied by sqrt(P), the projection is divided by sqrt(E) and normed, and the
    sum of both is divided by sqrt(2). Here the norm's epsilon stands for the division before it.
    """
    columns, rows, view = config.layers * second.width, np.arange(config.vocab_size), WHOLE
    if second.vocab_size != config.vocab_size:
        order = np.where(rows < second.vocab_size, rows, 0)
        view = View(order=order, stored_rows=second.vocab_size)
    weight = source.vector(names.per_layer_norm + ".weight", second.width)
    return PerLayerEmbedding(
        source.matrix(names.per_layer_table + ".weight", config.vocab_size, columns, view),
        (second.width / 2) ** 0.5,
        linear(source, names.per_layer_projection, columns, config.width, False),
        Norm(weight * np.float32(0.5**0.5), config.norm_eps * config.width, heads=config.layers),
    )


def per_layer_gate(source: WeightSource, config: ModelConfig, names: TensorNames, layer: int) -> PerLayerGate:
    """What one layer does with its part of the second embedding."""
    assert config.per_layer is not None
    at, width = names.layer.format(layer), config.per_layer.width
    return PerLayerGate(
        layer * width,
        linear(source, at + names.layer_gate, width, config.width, False),
        linear(source, at + names.layer_projection, config.width, width, False),
        norm(source, at + names.layer_post, config.width, config.norm_eps, layer_norm=False, bias=False),
        config.activation,
    )
