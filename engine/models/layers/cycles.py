"""Layers that run several times: two stacks in turns (HRM-Text, arXiv 2506.21734), or one stack (Ouro, arXiv
2510.25741). Every run of a layer has keys and values of its own.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.config.hyper import Cycles, Loops
from engine.models.layers.parts import Block, Norm, RopeTables
from engine.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class CyclicBlocks:
    """`fast` runs of layers make a new fast state of the sum of it and the slow state, then a run of others
    makes a new slow state of the sum, and so on; the slow state begins as the embedding and is the result.
    `start` makes the first fast state of any rows; `last` norms what a run makes.
    """

    kind: Cycles
    runs: tuple[tuple[Block, ...], ...]
    start: Norm
    last: Norm
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        slow, fast = x, self.start(ops, x)
        for number, blocks in enumerate(self.runs, 1):
            made = self._run(ops, ops.add(fast, slow), tables, blocks)
            slow, fast = (slow, made) if number % (self.kind.fast + 1) else (made, fast)
        return slow

    def _run(self, ops: Ops, x: Array, tables: RopeTables, blocks: tuple[Block, ...]) -> Array:
        for block in blocks:
            x = block(ops, x, tables)
        return self.last(ops, x)


@dataclass(frozen=True, slots=True)
class LoopedBlocks:
    """Runs of the same layers, one after the other; `between` norms what each run but the last makes."""

    runs: tuple[tuple[Block, ...], ...]
    between: Norm | None
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        for number, blocks in enumerate(self.runs):
            if number and self.between is not None:
                x = self.between(ops, x)
            for block in blocks:
                x = block(ops, x, tables)
        return x


# -- building


def looped_blocks(loops: Loops, blocks: Sequence[Block], between: Norm | None) -> LoopedBlocks:
    """Of one stack, each run with cache layers of its own."""
    size, made = len(blocks), as_they_run(loops, blocks)
    return LoopedBlocks(tuple(made[at : at + size] for at in range(0, len(made), size)), between)


def as_they_run(loops: Loops, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks of all runs one after the other, those with attention over cache layers of their own."""
    made, cached = list[Block](), count()
    for at in loops.order(len(blocks)):
        block = blocks[at]
        made.append(block if block.attention is None else _reading(block, next(cached)))
    return tuple(made)


def cyclic_blocks(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: Cycles, blocks: Sequence[Block]
) -> CyclicBlocks:
    """Of the fast layers and then the slow ones, each with the cache layers of its runs."""
    size, made = kind.layers, list[tuple[Block, ...]]()
    for _unused in range(kind.slow):
        for own in (*[blocks[:size]] * kind.fast, blocks[size:]):
            made.append(tuple(_reading(block, len(made) * size + at) for at, block in enumerate(own)))
    width, first = config.width, source.vector(names.first_state, config.width)
    start = Norm(np.zeros(width, np.float32), 1.0, first, is_layer_norm=True)
    return CyclicBlocks(kind, tuple(made), start, Norm(np.ones(width, np.float32), config.norm_eps))


def _reading(block: Block, layer: int) -> Block:
    """The block over another layer of the cache."""
    assert isinstance(block.attention, Attention)
    return replace(block, attention=replace(block.attention, layer=layer))
