"""Attention of layers that run a second time: to the keys of the first run, and to their own in a window
(IQuest-Coder Loop).

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.building.source import View
from engine.models.config.hyper import Loops
from engine.models.layers.cycles import LoopedBlocks
from engine.models.layers.parts import Block, RopeTables
from engine.models.layers.vectors import same_rows
from engine.tensors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class SecondRun:
    """g times attention to all keys of the `first` run of a layer, plus 1 - g times attention of the same
    queries to keys of this run, in cache layer `layer` of the shape `near`; then the first run's projection.

    g is the sigmoid of the product of a head's query and its row of weights, plus a `bias` (H * D,): each of
    the matrices `gates` (D, D) has that row as often as a head has numbers, and the bias each head's number.
    """

    first: Attention
    layer: int
    near: AttentionShape
    gates: Sequence[Weight]
    bias: Floats

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        own, table = self.first, tables.table(self.first.rope)
        q, k, v = own.inputs(ops, x)
        assert k is not None
        if table is not None:
            q, k = ops.rope(q, table, own.shape.heads), ops.rope(k, table, own.shape.kv_heads)
        whole = ops.attention(own.layer, q, None, None, own.shape)
        near = ops.attention(self.layer, q, k, v, self.near)
        gate = ops.head_linear(q, self.gates)
        gate = ops.add(gate, same_rows(ops, gate, self.bias))
        mixed = ops.add(near, ops.gated(gate, ops.add(whole, near, -1.0), "sigmoid"))
        return own.output(ops, mixed, residual)


def twice(builder: Builder) -> Generator[int, None, LoopedBlocks]:
    """All layers of both runs; yields the number of finished ones after each."""
    config, first, second = builder.config, list[Block](), list[Block]()
    assert isinstance(config.cycles, Loops)
    for layer in range(config.layers):
        block = builder.block(layer)
        assert isinstance(block.attention, Attention)
        first.append(block)
        again = _second_run(builder, block.attention, layer, config.cycles.window)
        second.append(replace(block, attention=again))
        yield layer + 1
    return LoopedBlocks((tuple(first), tuple(second)), None)


def _second_run(builder: Builder, first: Attention, layer: int, window: int) -> SecondRun:
    shape, name = first.shape, builder.names.loop_gate.format(layer)
    heads, dim = shape.heads, shape.head_dim
    gates = [
        builder.source.matrix(
            name + ".weight", dim, dim, View(order=np.full(dim, head), stored_rows=heads)
        )
        for head in range(heads)
    ]  # fmt: skip
    bias = builder.source.vector(name + ".bias", heads).repeat(dim)
    return SecondRun(first, builder.config.layers + layer, replace(shape, window=window), gates, bias)
