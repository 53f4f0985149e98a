"""The threads that run a tape together, and the one `nogil` call that replays it.

A tape is a list of *phases*; the operations of one phase do not depend on each other. The tiles of a phase
are shared out evenly, neighbouring ones together: a thread that reads weights in the order they lie in is up
to a third faster than two that take turns. Each share has a ticket word, the epoch (number of the replay) in
the high half and the tiles taken in the low half, and each phase, in another cache line, a word of the same
form that counts the tiles done. A thread takes tiles of its own share, and then of the others', by
compare-and-swap until none is left: one that loses its core delays nothing but its present tile. Phases of
one tile are the caller's: handing them out would cost more than they do.

Nothing is reset between replays: a word of an earlier epoch stands for none taken and none done. A thread
that wakes up late finds all tiles of its epoch taken, or a newer epoch, and leaves; how many there were it
knows from the rows it was told when its epoch began, never from the step block, which may be that of the next
step. Between replays helper threads spin for as long as one token's sampling may take, then sleep on a lock
without using a core. `neighbours` says how many of them take part. While a thread of this process asks for
room, a helper naps between two tiles, and goes on in the same replay when it is given back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from engine.backends.cpu.codegen.simd import (
    atomic_load,
    atomic_store,
    call_kernel,
    compare_exchange,
    ld_i64,
    pause,
    st_i64,
)
from engine.backends.cpu.kernels.linear.linear import specialise
from engine.backends.cpu.runtime.clock import clock_functions, ticks, ticks_per_second
from engine.backends.cpu.runtime.contention import ACTIVE, GRAIN, SHORTEST_STALL, neighbour_functions, prepare
from engine.backends.cpu.runtime.contention import WORDS as NEIGHBOUR_WORDS
from engine.backends.cpu.runtime.cores import usable_cpus
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.step_block import LOGIT_ROWS, ROWS, SMALL_BATCH
from engine.platform import core_yield

_LINE = 8
"""int64 words of one cache line: words that different threads write are kept a line apart."""
EPOCH, BEGUN, CLOSING = range(3)
TAPE, PHASES, PHASE_COUNT, STEP, STEP_ROWS, STEP_LOGIT_ROWS, TICKETS, SHARES = range(_LINE, _LINE + 8)
NEIGHBOURS = 2 * _LINE
PARKED = NEIGHBOURS + NEIGHBOUR_WORDS
_SPINS_BEFORE_TIMING = 64
_SPINS_BEFORE_YIELD = 2000
_SPINS_BEFORE_PARKING = 100000
"""Some 3 ms: Python between steps takes up to 1 ms, and a helper woken from sleep needs Python's lock,
which a window may hold.
"""

# Words of one operation on a tape.
FUNCTION, ARGUMENTS, SMALL_TILES, SMALL_BLOCK, BIG_TILES, BIG_BLOCK, ON_LOGIT_ROWS = range(7)
OPERATION = 8

_NAP_US = 50
"""Microseconds, and as many again by the system's own measure: a window is at work for some thousand."""

Words = npt.NDArray[np.int64]

_WINDOWS = os.name == "nt"
_yield_core = types.ExternalFunction("SwitchToThread" if _WINDOWS else "sched_yield", types.int32())
_sleep_us = _yield_core if _WINDOWS else types.ExternalFunction("usleep", types.int32(types.uint32))


def _nap() -> None:
    """Leave the core for a moment."""
    if _WINDOWS:
        _yield_core()  # the shortest sleep there may last 16 ms
    else:
        _sleep_us(_NAP_US)


def _tiles(operation: int, rows: int, logit_rows: int) -> int:
    """Tiles of one operation in a step of so many rows."""
    mine = logit_rows if ld_i64(operation + 8 * ON_LOGIT_ROWS) else rows
    short = mine <= SMALL_BATCH
    count = ld_i64(operation + 8 * (SMALL_TILES if short else BIG_TILES))
    block = ld_i64(operation + 8 * (SMALL_BLOCK if short else BIG_BLOCK))
    return int(count * ((mine + block - 1) // block))


def _run(tape: int, first: int, tile: int, rows: int, logit_rows: int, step: int, scratch: int) -> None:
    """Run one tile of the phase that begins with operation `first`."""
    operation = tape + 8 * OPERATION * first
    count = tiles(operation, rows, logit_rows)
    while tile >= count:
        tile -= count
        operation += 8 * OPERATION
        count = tiles(operation, rows, logit_rows)
    call_kernel(ld_i64(operation + 8 * FUNCTION), ld_i64(operation + 8 * ARGUMENTS), step, tile, scratch)


def _finish(done: int, epoch: int, count: int) -> None:
    """Count `count` tiles as done."""
    while True:
        word = atomic_load(done)
        if compare_exchange(done, word, (word if word >> 32 == epoch else epoch << 32) + count):
            return


def _wait(done: int, target: int) -> int:
    """Wait until the word says `target` or more, which a newer epoch does too; returns the ticks if it
    took long.
    """
    spins = begun = 0
    while atomic_load(done) < target:
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            _yield_core()
        else:
            pause()
        if spins == _SPINS_BEFORE_TIMING:
            begun = ticks()
    return ticks() - begun if spins >= _SPINS_BEFORE_TIMING else 0


def _rest(control: int, me: int, epoch: int) -> int:
    """Leave the core while it is wanted; returns whether to go on with the epoch, which may be over or go
    on without this thread.
    """
    state = control + 8 * NEIGHBOURS
    while me >= present(state):
        if (
            me >= atomic_load(state + 8 * ACTIVE)
            or atomic_load(control + 8 * EPOCH) != epoch
            or atomic_load(control + 8 * CLOSING)
        ):
            return 0
        nap()
    return 1


def _take(
    control: int, me: int, epoch: int, tape: int, first: int, total: int, step: int, rows: int,
    logit_rows: int, words: int, shares: int, done: int, scratch: int,
) -> int:  # fmt: skip
    """Take tiles of the phase that begins with operation `first` until none is left; returns whether to go
    on with the next phase.
    """
    state = control + 8 * NEIGHBOURS
    mine, share, left = 0, me, shares
    while left:
        if me >= present(state):
            if mine:
                finish(done, epoch, mine)
                mine = 0
            if not rest(control, me, epoch):
                return 0
        ticket = words + 8 * share
        word = atomic_load(ticket)
        if word >> 32 > epoch:
            return 0
        tile = total * share // shares + (word & 0xFFFFFFFF if word >> 32 == epoch else 0)
        if tile >= total * (share + 1) // shares:
            share = share + 1 if share + 1 < shares else 0
            left -= 1
            continue
        if not compare_exchange(ticket, word, (epoch << 32) + tile + 1 - total * share // shares):
            continue
        run(tape, first, tile, rows, logit_rows, step, scratch)
        mine += 1
    if mine:
        finish(done, epoch, mine)
    return 1 if me < present(state) else rest(control, me, epoch)


def _work(
    control: int, me: int, epoch: int, tape: int, phases: int, phase_count: int, step: int, rows: int,
    logit_rows: int, tickets: int, shares: int, stamps: int, scratch: int,
) -> None:  # fmt: skip
    """Take tiles of all phases in turn until the tape is done, the epoch is over, or this thread is given up.

    `me` is 0 for the caller. It writes the time at the end of each phase to `stamps`, from the second word
    on, unless that is 0.
    """
    state = control + 8 * NEIGHBOURS
    shortest_stall = SHORTEST_STALL * atomic_load(state + 8 * GRAIN)
    before_done = before_target = 0  # what has to be done before the next tile
    for p in range(phase_count):
        first, last = ld_i64(phases + 8 * p), ld_i64(phases + 8 * (p + 1))
        total = 0
        for i in range(first, last):
            total += tiles(tape + 8 * OPERATION * i, rows, logit_rows)
        words = tickets + 8 * _LINE * (2 + (shares - 1) // _LINE) * p
        done = words + 8 * _LINE * (1 + (shares - 1) // _LINE)
        target = (epoch << 32) + total
        if total <= 1:
            if me == 0:
                if total:
                    run(tape, first, 0, rows, logit_rows, step, scratch)
                    atomic_store(done, target)
                if stamps:
                    st_i64(stamps + 8 * (p + 1), ticks())
            elif total:
                before_done, before_target = done, target
            continue
        if before_done:
            wait(before_done, before_target)
            before_done = 0
        if not take(
            control, me, epoch, tape, first, total, step, rows, logit_rows, words, shares, done, scratch
        ):
            return
        waited = wait(done, target)
        # In a long step one tile may well take longer than that, and a thread with half a core is still worth
        # having.
        if waited > shortest_stall and rows <= SMALL_BATCH and shortest_stall:
            stalled(state, waited, ticks())
        if stamps and me == 0:
            st_i64(stamps + 8 * (p + 1), ticks())


def _publish(
    control: int, tape: int, phases: int, phase_count: int, step: int, tickets: int, helpers: int
) -> int:
    """Open a new epoch for the helpers that take part; returns a bit for each that sleeps and has to be
    woken.
    """
    active = admit(control + 8 * NEIGHBOURS, ticks())
    epoch = atomic_load(control + 8 * EPOCH) + 1
    atomic_store(control + 8 * BEGUN, epoch)
    atomic_store(control + 8 * TAPE, tape)
    atomic_store(control + 8 * PHASES, phases)
    atomic_store(control + 8 * PHASE_COUNT, phase_count)
    atomic_store(control + 8 * STEP, step)
    atomic_store(control + 8 * STEP_ROWS, ld_i64(step + 8 * ROWS))
    atomic_store(control + 8 * STEP_LOGIT_ROWS, ld_i64(step + 8 * LOGIT_ROWS))
    atomic_store(control + 8 * TICKETS, tickets)
    atomic_store(control + 8 * SHARES, helpers + 1)
    atomic_store(control + 8 * EPOCH, epoch)
    asleep = 0
    for h in range(min(helpers, active - 1)):
        if compare_exchange(control + 8 * (PARKED + _LINE * h), 1, 0):
            asleep |= 1 << h
    return asleep


def _join(control: int, me: int, epoch: int, stamps: int, scratch: int) -> None:
    """Take part in an epoch as it was published."""
    tape, phases = atomic_load(control + 8 * TAPE), atomic_load(control + 8 * PHASES)
    count, step = atomic_load(control + 8 * PHASE_COUNT), atomic_load(control + 8 * STEP)
    rows, logit_rows = atomic_load(control + 8 * STEP_ROWS), atomic_load(control + 8 * STEP_LOGIT_ROWS)
    tickets, shares = atomic_load(control + 8 * TICKETS), atomic_load(control + 8 * SHARES)
    if stamps:
        st_i64(stamps, ticks())
    # The words may already belong to a newer epoch; then they are not a set that can be trusted.
    if atomic_load(control + 8 * BEGUN) == epoch:
        work(
            control, me, epoch, tape, phases, count, step, rows, logit_rows, tickets, shares, stamps, scratch
        )


def _help(control: int, helper: int, seen: int, scratch: int) -> int:
    """A helper thread's loop: work on each new epoch; returns the last one seen when it should sleep, -1
    to end.
    """
    parked = control + 8 * (PARKED + _LINE * helper)
    state = control + 8 * NEIGHBOURS
    spins = 0
    while True:
        epoch = atomic_load(control + 8 * EPOCH)
        if atomic_load(control + 8 * CLOSING):
            return -1
        out = helper + 1 >= atomic_load(state + 8 * ACTIVE)
        if out:
            spins = _SPINS_BEFORE_PARKING
        elif helper + 1 >= present(state):
            nap()
            continue
        elif epoch != seen:
            join(control, helper + 1, epoch, 0, scratch)
            seen, spins = epoch, 0
            continue
        spins += 1
        pause()
        if spins > _SPINS_BEFORE_PARKING:
            atomic_store(parked, 1)
            out = helper + 1 >= atomic_load(state + 8 * ACTIVE)
            if (out or atomic_load(control + 8 * EPOCH) == seen) and not atomic_load(control + 8 * CLOSING):
                return seen
            if not compare_exchange(parked, 1, 0):
                return seen
            spins = 0


tiles: Any = _tiles
run: Any = _run
finish: Any = _finish
wait: Any = _wait
nap: Any = _nap
rest: Any = _rest
take: Any = _take
work: Any = _work
join: Any = _join
stalled: Any = None
admit: Any = None
present: Any = None


def pool_functions(jit: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The compiled functions of a thread pool; `jit(function, signature)` compiles one."""
    word, void = types.int64, types.void
    neighbours = neighbour_functions(jit)
    compiled: dict[str, Any] = {
        "tiles": jit(_tiles, word(*[word] * 3)),
        "finish": jit(_finish, void(*[word] * 3)),
    }
    compiled["wait"] = jit(_wait, word(word, word))
    compiled["run"] = jit(specialise(_run, "run", tiles=compiled["tiles"]), void(*[word] * 7))
    present = {"present": neighbours["present"]}
    compiled["nap"] = jit(_nap, void())
    compiled["rest"] = jit(specialise(_rest, "rest", nap=compiled["nap"], **present), word(word, word, word))
    compiled["take"] = jit(specialise(_take, "take", **present, **compiled), word(*[word] * 13))
    compiled["work"] = jit(
        specialise(_work, "work", stalled=neighbours["stalled"], **compiled), void(*[word] * 13)
    )
    compiled["join"] = jit(specialise(_join, "join", work=compiled["work"]), void(*[word] * 5))
    return {
        **compiled,
        **neighbours,
        **clock_functions(jit),
        "publish": jit(specialise(_publish, "publish", admit=neighbours["admit"]), word(*[word] * 7)),
        "help": jit(
            specialise(_help, "help", join=compiled["join"], nap=compiled["nap"], **present),
            word(*[word] * 4),
        ),
    }


class Recording:
    """What a thread pool replays: a tape, the first operation of each phase and the end, and the step
    block; none may move.
    """

    def __init__(self, tape: Words, phases: Words, step: Words, threads: int) -> None:
        self.phase_count = len(phases) - 1
        # For each phase a line for every eight shares, and one for the tiles done.
        self.tickets: Words = aligned(8 * _LINE * (2 + (threads - 1) // _LINE) * self.phase_count).view(
            np.int64
        )
        self.arrays = (tape, phases, step, self.tickets)
        self.addresses = (
            tape.ctypes.data,
            phases.ctypes.data,
            self.phase_count,
            step.ctypes.data,
            self.tickets.ctypes.data,
        )


class ThreadPool:
    """`threads - 1` helper threads and the caller. Not re-entrant: one thread replays tapes."""

    def __init__(self, functions: dict[str, Any], threads: int, scratch_bytes: int) -> None:
        self._functions = functions
        self._control = aligned(8 * (PARKED + _LINE * threads))
        self._words: Words = self._control.view(np.int64)
        self._address = int(self._control.ctypes.data)
        self._scratch = [aligned(scratch_bytes) for _ in range(threads)]
        self._own_scratch = int(self._scratch[0].ctypes.data)
        self._wake = [threading.Lock() for _ in range(threads - 1)]
        wanted = core_yield.address() if threads >= usable_cpus() else 0
        prepare(self._words[NEIGHBOURS:PARKED], threads, ticks_per_second(), wanted)
        for lock in self._wake:
            lock.acquire()
        self._threads = [
            threading.Thread(target=self._helper, args=(h,), name=f"cpu-kernel-{h + 1}", daemon=True)
            for h in range(threads - 1)
        ]
        for thread in self._threads:
            thread.start()

    def _helper(self, helper: int) -> None:
        seen = 0
        address, scratch = self._control.ctypes.data, self._scratch[helper + 1].ctypes.data
        while (seen := self._functions["help"](address, helper, seen, scratch)) >= 0:
            self._wake[helper].acquire()

    def replay(self, recording: Recording, stamps: Words | None = None) -> None:
        """Run every operation of the tape once; returns when all are done.

        The recording must outlive the thread pool: a thread that lost its core may look at it later, though
        at nothing else. `stamps` (phases + 1,) is filled with the time at the start and at the end of each
        phase, in ticks of `clock`.
        """
        asleep = self._functions["publish"](self._address, *recording.addresses, len(self._threads))
        if asleep:
            for helper, lock in enumerate(self._wake):
                if asleep >> helper & 1:
                    lock.release()
        note = 0 if stamps is None else stamps.ctypes.data
        self._functions["join"](self._address, 0, int(self._words[EPOCH]), note, self._own_scratch)

    @property
    def active(self) -> int:
        """Threads that take part at present, the caller among them."""
        return int(self._words[NEIGHBOURS + ACTIVE])

    def close(self) -> None:
        """End the helper threads."""
        self._words[CLOSING] = 1
        for helper, thread in enumerate(self._threads):
            if self._wake[helper].locked():
                self._wake[helper].release()
            thread.join()
        self._threads, self._wake = [], []
