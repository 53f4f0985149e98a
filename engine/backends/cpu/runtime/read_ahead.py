"""Whether a single row's products prefetch packed weights: measured with each model's own weights.

The prefetchers of some processors fall behind such a product, which then waits for memory at every line: on
Intel's Emerald Rapids prefetching made the decode of a model in Q4_K_M by half faster, on AMD's Zen 5 by a
fifth. On another processor it cost a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.cpu.kernels.linear.linear import A_AHEAD, A_GROUP, A_TILE_BYTES, A_TILES, A_WEIGHT
from engine.backends.cpu.layouts.layout import READ_AHEAD
from engine.backends.cpu.lowering.call import Operation
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.work_stealing import (
    ARGUMENTS,
    BIG_BLOCK,
    FUNCTION,
    OPERATION,
    SMALL_TILES,
    Words,
)

_MOST = 48
"""Products that are measured, about 10 microseconds each."""
_FEWEST = 8
"""With fewer there are too few figures to choose by."""
_LEAST_BYTES = 16 << 20
"""Of all products together. Those of a smaller model come from the caches, however they are read."""
_GAIN = 0.98
"""Products prefetch unless they take less than this share of the time without."""


Replay = Callable[[Words, Words, Words], None]
"""Runs operations (their words), divided into stages, and writes the stages' times to the third array; see
`ThreadPool.replay`.
"""


def choose_read_ahead(operations: Sequence[Operation], words: Words, blocks: Words, replay: Replay) -> None:
    """Let the products of a program prefetch or not, whichever is faster now.

    `words` (operations, OPERATION) and `blocks` (operations, words of an argument block) are the program's.
    `replay` runs a step of one row. What the measurement writes, a step writes again.
    """
    products = [i for i, each in enumerate(operations) if each.prefetches]
    timed = [i for i in products if operations[i].kernel.startswith("linear") and _parts(blocks[i]) >= 3]
    if len(timed) < _FEWEST or sum(operations[i].bytes for i in products) < _LEAST_BYTES:
        return
    ahead, without = _times(timed[:: -(-len(timed) // _MOST)], words, blocks, replay)
    if ahead.all() and np.median(without / ahead) < _GAIN:
        blocks[products, A_AHEAD] = 0


def _parts(block: Words) -> int:
    """The tiles that a small batch's product is divided into."""
    return int(block[A_TILES] // block[A_GROUP])


def _times(timed: Sequence[int], words: Words, blocks: Words, replay: Replay) -> tuple[Words, Words]:
    """For each of these products the ticks of a tile with prefetching, and of another without.

    They follow a tile that brings the kernel and its input near. Stages of a tile run on the calling thread.
    """
    stages: Words = np.arange(3 * len(timed) + 1, dtype=np.int64)
    calls = aligned(8 * OPERATION * (len(stages) - 1)).view(np.int64).reshape(-1, OPERATION)
    arguments = aligned(8 * blocks.shape[1] * len(calls)).view(np.int64).reshape(len(calls), -1)
    for place, i in enumerate(timed):
        last, group = _parts(blocks[i]) - 1, blocks[i, A_GROUP]
        turns = (0, READ_AHEAD) if place % 2 else (READ_AHEAD, 0)
        for turn, (part, ahead) in enumerate(((last // 2, READ_AHEAD), (0, turns[0]), (last, turns[1]))):
            call, block = calls[3 * place + turn], arguments[3 * place + turn]
            block[:] = blocks[i]
            block[A_WEIGHT] += part * group * block[A_TILE_BYTES]
            block[A_TILES], block[A_AHEAD] = group, ahead
            call[FUNCTION], call[ARGUMENTS] = words[i, FUNCTION], block.ctypes.data
            call[SMALL_TILES : BIG_BLOCK + 1] = 1
    stamps: Words = np.zeros(len(stages), np.int64)
    replay(calls.reshape(-1), stages, stamps)
    spent = np.diff(stamps).reshape(-1, 3)[:, 1:]
    spent[1::2] = spent[1::2, ::-1]
    return spent[:, 0], spent[:, 1]
