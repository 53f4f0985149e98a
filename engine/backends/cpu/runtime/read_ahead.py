"""How a single row's products prefetch packed weights: how far ahead, into which levels of the cache, if at
all. Measured for each layout with a model's own weights, in the compiled kernel itself: the same code can be
a third slower at another place in memory. Several rows always prefetch.

The prefetchers of some processors fall behind such a product, which then waits for memory at every line: on
Intel's Emerald Rapids prefetching made the decode of a model in Q4_K_M by half faster, on AMD's Zen 5 by a
fifth. On another processor it cost a tenth. A Xeon with AMX read Q4_K a twelfth faster when it came into the
second-level cache alone, and Q6_K an eighth faster when it came into both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.cpu.codegen.simd import WIDE
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
"""Measurements of a layout, about 30 microseconds each."""
_FEWEST = 8
"""With fewer there are too few figures to choose by."""
_LEAST_BYTES = 16 << 20
"""Of all products together. Those of a smaller model come from the caches, however they are read."""
_GAIN = 0.98
"""The first of `_WAYS` is taken unless another one takes less than this share of its time."""
_WAYS = (-READ_AHEAD, READ_AHEAD, 0) if WIDE else (READ_AHEAD, 0)
"""What is tried for `A_AHEAD`. Where a tile takes as long with the first-level cache, a whole product often
takes longer. Without AVX-512 nothing is prefetched into that.
"""


Replay = Callable[[Words, Words, Words], None]
"""Runs operations (their words), divided into stages, and writes the stages' times to the third array; see
`ThreadPool.replay`.
"""


def choose_read_ahead(operations: Sequence[Operation], words: Words, blocks: Words, replay: Replay) -> None:
    """Let the products of a program prefetch in the way that is fastest now for their layout.

    `words` (operations, OPERATION) and `blocks` (operations, words of an argument block) are the program's.
    `replay` runs a step of one row. What the measurement writes, a step writes again.
    """
    products = [i for i, each in enumerate(operations) if each.prefetches]
    if sum(operations[i].bytes for i in products) < _LEAST_BYTES:
        return
    layouts = defaultdict[str, list[int]](list)
    for i in products:
        layouts[operations[i].kernel.partition("_")[2]].append(i)
    for same in layouts.values():
        timed = _turns([i for i in same if operations[i].kernel.startswith("linear")], blocks)
        if len(timed) < _FEWEST:
            continue
        times = _times(timed, words, blocks, replay)
        if times.all():
            shares = np.median(times / times[:, :1], axis=0)
            best = int(shares.argmin()) if shares.min() < _GAIN else 0
            blocks[same, A_AHEAD] = _WAYS[best]


def _turns(products: Sequence[int], blocks: Words) -> list[tuple[int, list[int]]]:
    """Up to `_MOST` measurements: a product, and the tiles of it, as a small batch takes them, that are read:
    one that brings the kernel and its input near, and one for each of `_WAYS`.
    """
    found, each = list[tuple[int, list[int]]](), 1 + len(_WAYS)
    for number, i in enumerate(products):
        parts = int(blocks[i, A_TILES] // blocks[i, A_GROUP])
        most = min(parts // each, -(-(_MOST - len(found)) // (len(products) - number)))
        places = [parts * turn // (each * most) for turn in range(each * most)]
        found += [(i, places[each * turn : each * (turn + 1)]) for turn in range(most)]
    return found


def _times(timed: Sequence[tuple[int, list[int]]], words: Words, blocks: Words, replay: Replay) -> Words:
    """For each of `_turns` the ticks of a tile with each of `_WAYS`. Stages of a tile run on the calling
    thread.
    """
    count = len(_WAYS)
    stages: Words = np.arange((1 + count) * len(timed) + 1, dtype=np.int64)
    calls = aligned(8 * OPERATION * (len(stages) - 1)).view(np.int64).reshape(-1, OPERATION)
    arguments = aligned(8 * blocks.shape[1] * len(calls)).view(np.int64).reshape(len(calls), -1)
    for number, (i, places) in enumerate(timed):
        group = blocks[i, A_GROUP]
        # The first is not timed. Then each measurement begins with another way.
        aheads = (READ_AHEAD, *(_WAYS[(number + turn) % count] for turn in range(count)))
        for turn, (place, ahead) in enumerate(zip(places, aheads, strict=True)):
            call, block = (each[(1 + count) * number + turn] for each in (calls, arguments))
            block[:] = blocks[i]
            block[A_WEIGHT] += place * group * block[A_TILE_BYTES]
            block[A_TILES], block[A_AHEAD] = group, ahead
            call[FUNCTION], call[ARGUMENTS] = words[i, FUNCTION], block.ctypes.data
            call[SMALL_TILES : BIG_BLOCK + 1] = 1
    stamps: Words = np.zeros(len(stages), np.int64)
    replay(calls.reshape(-1), stages, stamps)
    spent = np.diff(stamps).reshape(-1, 1 + count)[:, 1:]
    turns = (np.arange(count) - np.arange(len(timed))[:, None]) % count
    return np.take_along_axis(spent, turns, axis=1)
