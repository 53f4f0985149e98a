"""Core contention: how many threads take part while other programs use the cores too.

A thread that loses its core in the middle of a tile delays all others until it gets one back, milliseconds
later. Such a stall costs more than the thread contributes, so a thread pool that stalls repeatedly drops one
thread, no matter which: the system gives the idle core to the thread that waits. From time to time one more
thread is tried, at growing intervals as long as that fails. With one busy program on eight cores, seven
threads continue.

The state is a few int64 words beside the thread pool's; any thread may report a stall. Times are in ticks of
`clock`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from engine.backends.cpu.codegen.memory_ops import atomic_add, atomic_load, atomic_store, compare_exchange

# Words of the state: a cache line that all threads read often, and one that only stalls and trials touch.
ACTIVE, THREADS, GRAIN, YIELD_WORD = range(4)
LAST, DEBT, TRIED, NEXT, INTERVAL, PARKINGS = range(8, 14)
WORDS = 16

GRAINS_PER_SECOND = 10_000
"""A grain is 100 microseconds."""
SHORTEST_STALL = 2
"""The shortest wait, in grains, that counts as a stall."""
_LIMIT, _TRIAL_LIMIT = 80, 40
"""Grains lost before a thread is dropped; fewer while it is on trial."""
_LONGEST_STALL = 20
"""The most grains that one stall counts, since a computer may pause longer once and recover."""
_BEARABLE = 2
"""One of n threads may lose 1 / (2 n) of the time to stalls: a window costs less, a busy program more."""
_TRIAL, _SHORTEST, _LONGEST = 1000, 500, 10000
"""Grains of a trial, and the fewest and most grains between dropping a thread and the next trial."""


def _stalled(state: int, waited: int, now: int) -> None:
    """Report that a thread waited `waited` ticks, until `now`, for another thread's tile."""
    last = atomic_load(state + 8 * LAST)
    if now - last < waited >> 1 or not compare_exchange(state + 8 * LAST, last, now):
        return  # another thread has reported the same stall
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
    """Before a replay, try one more thread if it is time. Returns the number of threads that take part."""
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
    """The number of threads that take part at this moment: one fewer while another thread of this process
    asks for a core and no thread was dropped.
    """
    active = atomic_load(state + 8 * ACTIVE)
    word = atomic_load(state + 8 * YIELD_WORD)
    if word and active > 1 and active == atomic_load(state + 8 * THREADS) and atomic_load(word):
        active -= 1
    return int(active)


def contention_functions(jit: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """`stalled`, `admit` and `present`, compiled."""
    word = types.int64
    return {
        "stalled": jit(_stalled, types.void(word, word, word)),
        "admit": jit(_admit, word(word, word)),
        "present": jit(_present, word(word)),
    }


def prepare(state: Any, threads: int, ticks_per_second: float, yield_word: int = 0) -> None:
    """Fill in the `WORDS` words of a thread pool's state.

    `yield_word` is the address of the word of `engine.platform.core_yield`, or 0 if there are more cores than
    threads. Without a counter (0 ticks per second) stalls are not detected and all threads take part.
    """
    grain = int(ticks_per_second / GRAINS_PER_SECOND)
    state[[ACTIVE, THREADS, GRAIN, YIELD_WORD]] = threads, threads, grain, yield_word
    state[TRIED] = -(1 << 62)
