"""How far ahead a single row's products prefetch packed weights, if at all: measured with each model's own
weights. Those of several rows always prefetch, on processors other than AMD's as far as was measured.

The prefetchers of some processors fall behind such a product, which then waits for memory at every line: on
Intel's Emerald Rapids prefetching made the decode of a model in Q4_K_M by half faster, on AMD's Zen 5 by a
fifth. On another processor it cost a tenth. A Xeon with AMX read a twentieth faster with half the distance.
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
"""Products prefetch by `READ_AHEAD` unless another distance takes less than this share of the time."""
_DISTANCES = (READ_AHEAD, READ_AHEAD // 2, 0)
"""Bytes ahead that are tried; 0: without."""


Replay = Callable[[Words, Words, Words], None]
"""Runs operations (their words), divided into stages, and writes the stages' times to the third array; see
`ThreadPool.replay`.
"""


def choose_read_ahead(operations: Sequence[Operation], words: Words, blocks: Words, replay: Replay) -> None:
    """Let the products of a program prefetch as far ahead as is fastest now.

    `words` (operations, OPERATION) and `blocks` (operations, words of an argument block) are the program's.
    `replay` runs a step of one row. What the measurement writes, a step writes again.
    """
    products = [i for i, each in enumerate(operations) if each.prefetches]
    linear = [i for i in products if operations[i].kernel.startswith("linear")]
    timed = [i for i in linear if _parts(blocks[i]) > len(_DISTANCES)]
    if len(timed) < _FEWEST or sum(operations[i].bytes for i in products) < _LEAST_BYTES:
        return
    times = _times(timed[:: -(-len(timed) // _MOST)], words, blocks, replay)
    if times.all():
        shares = np.median(times / times[:, :1], axis=0)
        if shares.min() < _GAIN:
            blocks[products, A_AHEAD] = _DISTANCES[int(shares.argmin())]


def _parts(block: Words) -> int:
    """The tiles that a small batch's product is divided into."""
    return int(block[A_TILES] // block[A_GROUP])


def _times(timed: Sequence[int], words: Words, blocks: Words, replay: Replay) -> Words:
    """For each of these products the ticks of a tile with each of `_DISTANCES`, of another tile each.

    They follow a tile that brings the kernel and its input near. Stages of a tile run on the calling thread.
    """
    count = len(_DISTANCES)
    stages: Words = np.arange((1 + count) * len(timed) + 1, dtype=np.int64)
    calls = aligned(8 * OPERATION * (len(stages) - 1)).view(np.int64).reshape(-1, OPERATION)
    arguments = aligned(8 * blocks.shape[1] * len(calls)).view(np.int64).reshape(len(calls), -1)
    for place, i in enumerate(timed):
        last, group = _parts(blocks[i]) - 1, blocks[i, A_GROUP]
        # The first is not timed. Then each product begins with another distance.
        aheads = (READ_AHEAD, *(_DISTANCES[(place + turn) % count] for turn in range(count)))
        for turn, ahead in enumerate(aheads):
            call, block = (each[(1 + count) * place + turn] for each in (calls, arguments))
            block[:] = blocks[i]
            block[A_WEIGHT] += last * turn // count * group * block[A_TILE_BYTES]
            block[A_TILES], block[A_AHEAD] = group, ahead
            call[FUNCTION], call[ARGUMENTS] = words[i, FUNCTION], block.ctypes.data
            call[SMALL_TILES : BIG_BLOCK + 1] = 1
    stamps: Words = np.zeros(len(stages), np.int64)
    replay(calls.reshape(-1), stages, stamps)
    spent = np.diff(stamps).reshape(-1, 1 + count)[:, 1:]
    turns = (np.arange(count) - np.arange(len(timed))[:, None]) % count
    return np.take_along_axis(spent, turns, axis=1)
