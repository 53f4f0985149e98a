"""How many threads take part while other programs use the cores too.

A thread that loses its core in the middle of a tile holds up all others until it gets one back, some
milliseconds later. One such stall costs more than the thread brought in, so a thread pool that is stalled
again and again gives one thread up, whichever: the core that becomes idle is given to the thread that waits.
Now and then one more is tried, at growing intervals while that fails. With one busy neighbour on eight cores
seven threads go on.

The state is a few int64 words beside the thread pool's; any thread may report a stall. Times are in ticks of
`clock`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from engine.backends.cpu.codegen.simd import atomic_add, atomic_load, atomic_store, compare_exchange

# A cache line that all threads read often, and one that is only touched when something happens.
ACTIVE, THREADS, GRAIN, WANTED = range(4)
LAST, DEBT, TRIED, NEXT, INTERVAL, PARKINGS = range(8, 14)
WORDS = 16

GRAINS_PER_SECOND = 10_000
"""A grain is 100 microseconds."""
SHORTEST_STALL = 2
"""Grains of waiting that count as a stall at all."""
_LIMIT, _TRIAL_LIMIT = 80, 40
"""Grains that are lost before a thread is given up; fewer while it is on trial."""
_LONGEST_STALL = 20
"""Grains that one stall counts at most: a computer may be away for longer once, and be back."""
_BEARABLE = 2
"""A thread that brings in 1/n of the speed may lose half of that to stalls: a window's frames cost it
less, a busy neighbour more.
"""
_TRIAL, _SHORTEST, _LONGEST = 1000, 500, 10000
"""Grains that a trial lasts, and from giving a thread up to the next trial."""


def _stalled(state: int, waited: int, now: int) -> None:
    """A thread has waited `waited` ticks, until `now`, for another's tile."""
    last = atomic_load(state + 8 * LAST)
    if now - last < waited >> 1 or not compare_exchange(state + 8 * LAST, last, now):
        return  # others waited for the same, and one has said so
    active, grain = atomic_load(state + 8 * ACTIVE), atomic_load(state + 8 * GRAIN)
    waited = min(waited, _LONGEST_STALL * grain)
    on_trial = now - atomic_load(state + 8 * TRIED) < _TRIAL * grain
    debt = max(0, atomic_load(state + 8 * DEBT) - (now - last) // (_BEARABLE * active)) + waited
    if active > 1 and debt > grain * (_TRIAL_LIMIT if on_trial else _LIMIT):
        interval = _SHORTEST * grain
        if on_trial:
            interval = min(2 * atomic_load(state + 8 * INTERVAL), _LONGEST * grain)
        atomic_store(state + 8 * INTERVAL, interval)
        atomic_store(state + 8 * NEXT, now + interval)
        atomic_store(state + 8 * ACTIVE, active - 1)
        atomic_add(state + 8 * PARKINGS, 1)
        debt = 0
    atomic_store(state + 8 * DEBT, debt)


def _admit(state: int, now: int) -> int:
    """Before a replay: try one thread more when it is time; returns how many take part."""
    active = atomic_load(state + 8 * ACTIVE)
    if active < atomic_load(state + 8 * THREADS) and now >= atomic_load(state + 8 * NEXT):
        active += 1
        atomic_store(state + 8 * LAST, now)
        atomic_store(state + 8 * DEBT, 0)
        atomic_store(state + 8 * TRIED, now)
        atomic_store(state + 8 * NEXT, now + _TRIAL * atomic_load(state + 8 * GRAIN))
        atomic_store(state + 8 * ACTIVE, active)
    return int(active)


def _present(state: int) -> int:
    """How many take part at this moment: one fewer while a thread of this process asks for room and none
    was given up.
    """
    active = atomic_load(state + 8 * ACTIVE)
    wanted = atomic_load(state + 8 * WANTED)
    if wanted and active > 1 and active == atomic_load(state + 8 * THREADS) and atomic_load(wanted):
        active -= 1
    return int(active)


def neighbour_functions(jit: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """`stalled`, `admit` and `present`, compiled."""
    word = types.int64
    return {
        "stalled": jit(_stalled, types.void(word, word, word)),
        "admit": jit(_admit, word(word, word)),
        "present": jit(_present, word(word)),
    }


def prepare(state: Any, threads: int, ticks_per_second: float, wanted: int = 0) -> None:
    """Fill in the `WORDS` words of a thread pool's state.

    Without a counter no stall is ever seen, and all threads take part.

    `wanted` is the address of the word of `engine.platform.core_yield`, or 0 where there are more cores than
    threads anyway.
    """
    grain = int(ticks_per_second / GRAINS_PER_SECOND)
    state[[ACTIVE, THREADS, GRAIN, WANTED]] = threads, threads, grain, wanted
    state[[TRIED, INTERVAL]] = -(1 << 62), _SHORTEST * grain
