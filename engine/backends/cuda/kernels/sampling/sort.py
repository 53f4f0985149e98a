"""Finds the most likely tokens in order, without reading most of the vocabulary.

The depth (distance below the maximum) at which enough group maxima are found bounds the depth of the
requested tokens. Depths are binned by the upper bits of their float32, 64 bins for each power of two;
all tokens up to the last bin are taken. Counts are integers and ranks are unique, so the result does
not depend on the order in which threads run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    adds_i32,
    ballot,
    barrier,
    bits_float,
    float_bits,
    ld_f32,
    ld_i32,
    lds_f32,
    lds_f32x4,
    lds_i32,
    maximum,
    popcount,
    shared,
    shfl_up_i32,
    st_f32,
    st_i32,
    static,
    sts_f32,
    sts_i32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.common import warp_max
from engine.backends.cuda.kernels.sampling.layout import (
    COUNT,
    DEPTH,
    IDS,
    INSIDE,
    LOWEST,
    MOST,
    NOTHING,
    SCORES,
    WHOLE,
)

THREADS = 1024
BINS = 1024
SHIFT = 17
BASE = (127 - 6) << 6
"""Depths below 2^-6 share one bin."""

# Shared memory: the bins' counts, totals of warps, maxima of warps, the last bin that is taken, the number of
# tokens found; then these.
TOTALS, MAXIMA, EDGE, FOUND = 4096, 4224, 4352, 4356
FOUND_SCORES, FOUND_IDS = 4368, 4368 + 4 * MOST
ROOM = FOUND_IDS + 4 * MOST


def _bin(depth: float) -> Any:
    step = int32(int32(uint32(float_bits(depth) >> uint32(SHIFT))) - BASE)
    return int32(min(max(step, 0), BINS - 1))


def _largest(groups: int, count: int, room: int) -> Any:
    """The maximum of all group maxima, in every thread."""
    largest = float32(NOTHING)
    for index in range(thread(), count, THREADS):
        largest = maximum(largest, ld_f32(groups + 4 * int64(index)))
    largest = warp_max(largest)
    if (thread() & 31) == 0:
        sts_f32(room + MAXIMA + 4 * (thread() >> 5), largest)
    barrier()
    return warp_max(lds_f32(room + MAXIMA + 4 * (thread() & 31)))


def _find_edge(want: int, room: int) -> None:
    """Store the first bin up to which `want` maxima are counted, if there is one."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    mine = lds_i32(room + 4 * thread())
    sums = mine
    for step in static(range(5)):
        below = shfl_up_i32(sums, 1 << step)
        if lane >= (1 << step):
            sums = int32(sums + below)
    if lane == 31:
        sts_i32(room + TOTALS + 4 * warp, sums)
    barrier()
    for other in range(warp):
        sums = int32(sums + lds_i32(room + TOTALS + 4 * other))
    if sums >= want and sums - mine < want:
        sts_i32(room + EDGE, thread())
    barrier()


def _sort(values: int, groups: int, plan: int, requested: int, out: int, count: int, group: int) -> None:
    """Write the most likely tokens in order to `out` (`layout`). One block.

    values: float32 (V,); groups: `count` maxima of `group` adjacent tokens each; word
    `requested` of the plan is the number of tokens.
    """
    wait_for_others()
    room = shared(ROOM)
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    inside, want = ld_i32(plan + 4 * INSIDE), ld_i32(plan + 4 * int64(requested))
    sts_i32(room + 4 * thread(), 0)
    sts_f32(room + FOUND_SCORES + 4 * thread(), float32(NOTHING))
    if thread() == 0:
        sts_i32(room + EDGE, BINS - 1)
        sts_i32(room + FOUND, 0)
    largest = _largest(groups, count, room)
    barrier()
    for index in range(thread(), count, THREADS):
        value = ld_f32(groups + 4 * int64(index))
        if value > float32(LOWEST):
            adds_i32(room + 4 * _bin(float32(largest - value)), 1)
    barrier()
    _find_edge(want, room)
    edge = lds_i32(room + EDGE)
    for base in range(32 * warp, count, THREADS):
        hit = int32(0)
        if base + lane < count:
            value = ld_f32(groups + 4 * int64(base + lane))
            if value > float32(LOWEST) and _bin(float32(largest - value)) <= edge:
                hit = int32(1)
        hits = ballot(hit)
        while hits != uint32(0):
            below = popcount(uint32(~hits & uint32(hits - uint32(1))))
            hits = uint32(hits & uint32(hits - uint32(1)))
            for token in range(
                int32((base + below) * group + lane), min(int32((base + below + 1) * group), inside), 32
            ):
                value = ld_f32(values + 4 * int64(token))
                if value > float32(LOWEST) and _bin(float32(largest - value)) <= edge:
                    slot = adds_i32(room + FOUND, 1)
                    if slot < MOST:
                        sts_f32(room + FOUND_SCORES + 4 * slot, value)
                        sts_i32(room + FOUND_IDS + 4 * slot, int32(token))
    barrier()
    found = lds_i32(room + FOUND)
    if thread() == 0:
        st_i32(out + 4 * COUNT, found if found <= MOST else int32(-1))
        st_f32(out + 4 * DEPTH, bits_float(uint32(uint32(edge + 1 + BASE) << uint32(SHIFT))))
        st_i32(out + 4 * WHOLE, int32(1) if edge == BINS - 1 else int32(0))
    if found <= MOST and thread() < found:
        _rank(room, found, out)


def _rank(room: int, found: int, out: int) -> None:
    """Write this thread's token at its rank: higher scores first, of equal ones the lower id."""
    mine, me = lds_f32(room + FOUND_SCORES + 4 * thread()), lds_i32(room + FOUND_IDS + 4 * thread())
    rank = int32(0)
    for other in range(0, found, 4):
        a, b, c, d = lds_f32x4(room + FOUND_SCORES + 4 * other)
        rank = int32(rank + _before(a, mine, me, room, other) + _before(b, mine, me, room, other + 1))
        rank = int32(rank + _before(c, mine, me, room, other + 2) + _before(d, mine, me, room, other + 3))
    st_f32(out + 4 * int64(SCORES + rank), mine)
    st_i32(out + 4 * int64(IDS + rank), me)


def _before(score: float, mine: float, me: int, room: int, other: int) -> Any:
    if score == mine:
        return int32(1) if lds_i32(room + FOUND_IDS + 4 * other) < me else int32(0)
    return int32(1) if score > mine else int32(0)


@cache
def sort_kernel() -> Kernel:
    return Kernel("sample_sort", _sort, "lllilii", THREADS, 40, {})
