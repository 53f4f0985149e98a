"""The threads that run a tape together, and the one `nogil` call that replays it.

A tape is a list of *phases*; the operations of one phase do not depend on each other. Each phase has a ticket word: the
epoch (number of the replay) in the high half, the next tile in the low half. Every thread takes tiles by compare-and-swap
until none is left, so a thread that loses its core delays nothing but its present tile, and one that wakes up late finds a
newer epoch and leaves. When a replay is done its tickets are retired, so that the step block may be written again at once: a
late thread finds no ticket of its epoch. Between replays helper threads spin briefly, then sleep on a lock without using a core.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from engine.backends.cpu.linear import specialise
from engine.backends.cpu.memory import aligned
from engine.backends.cpu.simd import atomic_add, atomic_load, atomic_store, call_kernel, compare_exchange, ld_i64, pause
from engine.backends.cpu.step import LOGIT_ROWS, ROWS, SMALL_ROWS

EPOCH, CLOSING, TAPE, PHASES, PHASE_COUNT, STEP, TICKETS, PARKED = range(8)
_LINE = 8
"""int64 words of one cache line: words that different threads write are kept a line apart."""
_SPINS_BEFORE_YIELD = 2000
_SPINS_BEFORE_PARKING = 20000

# Words of one operation on a tape.
FUNCTION, ARGUMENTS, SMALL_TILES, SMALL_BLOCK, BIG_TILES, BIG_BLOCK, ON_LOGIT_ROWS = range(7)
OPERATION = 8

Words = npt.NDArray[np.int64]

_yield_core = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())


def _work(tape: int, phases: int, phase_count: int, step: int, tickets: int, epoch: int, scratch: int) -> None:
    """Take tiles of all phases in turn until the tape is done, or until a newer epoch says that this one is over."""
    for p in range(phase_count):
        first, last = ld_i64(phases + 8 * p), ld_i64(phases + 8 * (p + 1))
        total = 0
        for i in range(first, last):
            total += tiles(tape + 8 * OPERATION * i, step)
        ticket = tickets + 8 * _LINE * p
        while True:
            word = atomic_load(ticket)
            if word >> 32 != epoch:
                return
            tile = word & 0xFFFFFFFF
            if tile >= total:
                break
            if not compare_exchange(ticket, word, word + 1):
                continue
            i = first
            while True:
                operation = tape + 8 * OPERATION * i
                count = tiles(operation, step)
                if tile < count:
                    break
                tile -= count
                i += 1
            call_kernel(ld_i64(operation + 8 * FUNCTION), ld_i64(operation + 8 * ARGUMENTS), step, tile, scratch)
            atomic_add(ticket + 8, 1)
        spins = 0
        while atomic_load(ticket + 8) < total:
            if atomic_load(ticket) >> 32 != epoch:
                return
            spins += 1
            if spins > _SPINS_BEFORE_YIELD:
                _yield_core()
            else:
                pause()


def _tiles(operation: int, step: int) -> int:
    """Tiles of one operation for the step's rows."""
    rows = ld_i64(step + 8 * (LOGIT_ROWS if ld_i64(operation + 8 * ON_LOGIT_ROWS) else ROWS))
    short = ld_i64(step + 8 * ROWS) <= SMALL_ROWS if not ld_i64(operation + 8 * ON_LOGIT_ROWS) else rows <= SMALL_ROWS
    count = ld_i64(operation + 8 * (SMALL_TILES if short else BIG_TILES))
    block = ld_i64(operation + 8 * (SMALL_BLOCK if short else BIG_BLOCK))
    return int(count * ((rows + block - 1) // block))


def _publish(control: int, tape: int, phases: int, phase_count: int, step: int, tickets: int, helpers: int) -> int:
    """Open a new epoch for all helpers; returns a bit for each helper that sleeps and has to be woken."""
    epoch = atomic_load(control + 8 * EPOCH) + 1
    for p in range(phase_count):
        atomic_store(tickets + 8 * _LINE * p, epoch << 32)
        atomic_store(tickets + 8 * (_LINE * p + 1), 0)
    atomic_store(control + 8 * TAPE, tape)
    atomic_store(control + 8 * PHASES, phases)
    atomic_store(control + 8 * PHASE_COUNT, phase_count)
    atomic_store(control + 8 * STEP, step)
    atomic_store(control + 8 * TICKETS, tickets)
    atomic_store(control + 8 * EPOCH, epoch)
    asleep = 0
    for h in range(helpers):
        if compare_exchange(control + 8 * (PARKED + _LINE * (h + 1)), 1, 0):
            asleep |= 1 << h
    return asleep


def _retire(phase_count: int, tickets: int) -> None:
    """End the epoch: from here on no thread can take a tile of it, whatever the step block says."""
    for p in range(phase_count):
        atomic_store(tickets + 8 * _LINE * p, 0)


def _help(control: int, helper: int, seen: int, scratch: int) -> int:
    """A helper thread's loop: work on each new epoch; returns the last one seen when it should sleep, -1 to end."""
    parked = control + 8 * (PARKED + _LINE * (helper + 1))
    spins = 0
    while True:
        epoch = atomic_load(control + 8 * EPOCH)
        if atomic_load(control + 8 * CLOSING):
            return -1
        if epoch != seen:
            tape, phases = atomic_load(control + 8 * TAPE), atomic_load(control + 8 * PHASES)
            count, step = atomic_load(control + 8 * PHASE_COUNT), atomic_load(control + 8 * STEP)
            tickets = atomic_load(control + 8 * TICKETS)
            # The words may already belong to a newer epoch; then they are not a set that can be trusted.
            if atomic_load(control + 8 * EPOCH) == epoch:
                work(tape, phases, count, step, tickets, epoch, scratch)
            seen, spins = epoch, 0
            continue
        spins += 1
        pause()
        if spins > _SPINS_BEFORE_PARKING:
            atomic_store(parked, 1)
            if atomic_load(control + 8 * EPOCH) == seen and not atomic_load(control + 8 * CLOSING):
                return seen
            if not compare_exchange(parked, 1, 0):
                return seen
            spins = 0


tiles: Any = _tiles
work: Any = _work


def team_functions(jit: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The compiled functions of a team; `jit(function, signature)` compiles one."""
    word = types.int64
    compiled_tiles = jit(_tiles, word(word, word))
    compiled_work = jit(specialise(_work, "work", tiles=compiled_tiles), types.void(*[word] * 7))
    return {
        "work": compiled_work,
        "publish": jit(_publish, word(*[word] * 7)),
        "retire": jit(_retire, types.void(word, word)),
        "help": jit(specialise(_help, "help", work=compiled_work), word(*[word] * 4)),
    }


def ticket_words(phases: int) -> Words:
    """Zeroed ticket words for this many phases, a cache line each."""
    return aligned(8 * _LINE * phases).view(np.int64)


class Team:
    """`threads - 1` helper threads and the caller. Not re-entrant: one thread replays tapes."""

    def __init__(self, functions: dict[str, Any], threads: int, scratch_bytes: int) -> None:
        self._functions = functions
        self._control = aligned(8 * _LINE * (threads + 1))
        self._scratch = [aligned(scratch_bytes) for _ in range(threads)]
        self._wake = [threading.Lock() for _ in range(threads - 1)]
        for lock in self._wake:
            lock.acquire()
        self._threads = [
            threading.Thread(target=self._helper, args=(h,), name=f"cpu-kernel-{h + 1}", daemon=True) for h in range(threads - 1)
        ]
        for thread in self._threads:
            thread.start()

    def _helper(self, helper: int) -> None:
        seen = 0
        address, scratch = self._control.ctypes.data, self._scratch[helper + 1].ctypes.data
        while (seen := self._functions["help"](address, helper, seen, scratch)) >= 0:
            self._wake[helper].acquire()

    def replay(self, tape: Words, phases: Words, step: Words, tickets: Words) -> None:
        """Run every operation of the tape once; returns when all are done.

        The four arrays must outlive the team: a thread that lost its core may look at them later, though at nothing else.
        """
        addresses = (tape.ctypes.data, phases.ctypes.data, len(phases) - 1, step.ctypes.data, tickets.ctypes.data)
        asleep = self._functions["publish"](self._control.ctypes.data, *addresses, len(self._threads))
        for helper, lock in enumerate(self._wake):
            if asleep >> helper & 1:
                lock.release()
        self._functions["work"](*addresses, int(self._words[EPOCH]), self._scratch[0].ctypes.data)
        self._functions["retire"](len(phases) - 1, tickets.ctypes.data)

    @property
    def _words(self) -> Words:
        return self._control.view(np.int64)

    def close(self) -> None:
        """End the helper threads."""
        self._words[CLOSING] = 1
        for helper, thread in enumerate(self._threads):
            if self._wake[helper].locked():
                self._wake[helper].release()
            thread.join()
        self._threads, self._wake = [], []
