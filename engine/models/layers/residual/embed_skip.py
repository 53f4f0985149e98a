"""Layers that add the embedding to what they make, times a number of their own (Talkie).

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.layers.parts import Block, Norm, RopeTables
from engine.models.layers.whole import Observe, unobserved

_GAIN = ".scale"
"""After the name of a matrix: that of a number that multiplies what the matrix makes."""


@dataclass(frozen=True, slots=True)
class SkippingBlocks:
    """Blocks, each followed by the stack's input times its number in `skips`; see
    `engine.models.layers.whole.Stack`.
    """

    blocks: tuple[Block, ...]
    skips: tuple[float, ...]
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        return self.observed(ops, x, tables, unobserved)

    def observed(self, ops: Ops, x: Array, tables: RopeTables, observe: Observe) -> Array:
        """As `Layered.observed`."""
        first = x = observe(0, x)
        for layers, (block, skip) in enumerate(zip(self.blocks, self.skips, strict=True), 1):
            x = observe(layers, ops.add(block(ops, x, tables), first, skip))
        return x


def skipping_blocks(builder: Builder) -> Generator[int, None, SkippingBlocks]:
    """The layers of a model whose normed queries are multiplied by a number of each head, and what their
    halves make by a number each, if the file has it; yields the number of finished layers.
    """
    source, config, names = builder.source, builder.config, builder.names
    blocks, skips = list[Block](), list[float]()
    for layer in range(config.layers):
        at, block = names.layer.format(layer), builder.block(layer)
        assert isinstance(block.attention, Attention)
        gains = source.vector(at + names.query_norm + ".weight", config.heads, 1)
        query_norm = Norm(np.repeat(gains, config.head_dim), config.norm_eps, heads=config.heads)
        results = (at + names.output + _GAIN, at + names.down + _GAIN)
        scales = [float(source.vector(name, 1)[0]) if source.has(name) else 1.0 for name in results]
        blocks.append(
            replace(
                block, attention=replace(block.attention, query_norm=query_norm),
                scales=((1.0, scales[0]), (1.0, scales[1])),
            )
        )  # fmt: skip
        skips.append(float(source.vector(at + names.layer_scale, 1)[0]))
        yield layer + 1
    return SkippingBlocks(tuple(blocks), tuple(skips))
