"""The compiled functions of the thread pool: work stealing over the tiles of a captured program.

A program is a list of operations divided into *stages*; the operations of a stage do not depend on each
other. The tiles of a stage are divided evenly into one queue for each thread, neighbouring tiles together: a
thread that reads weights in memory order is up to a third faster than two that alternate. Each queue has a
tile counter, a word with the epoch (the number of the replay) in the high half and the tiles taken in the low
half. Each stage has a similar word, in another cache line, that counts finished tiles. A thread takes tiles
from its own queue and then steals from the others, by compare-and-swap, until none are left: a thread that
loses its core delays only its current tile. The caller runs stages of a single tile, which would cost more to
distribute.

Nothing is reset between replays: a word of an earlier epoch means that no tile is taken or finished. A thread
that wakes up late finds all tiles of its epoch taken, or a newer epoch, and leaves. It computes the number of
tiles from the row counts published with its epoch, never from the step block, which may belong to the next
step. Between replays helper threads spin for as long as sampling a token may take, then sleep on a lock
without using a core. `contention` decides how many of them take part. While another thread of this process
asks for a core, a helper naps between tiles and continues when the request is withdrawn.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from engine.backends.cpu.codegen.memory_ops import (
    atomic_load,
    atomic_store,
    call_kernel,
    compare_exchange,
    ld_i32,
    ld_i64,
    pause,
    st_i32,
    st_i64,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise
from engine.backends.cpu.runtime.clock import clock_functions, ticks
from engine.backends.cpu.runtime.contention import ACTIVE, GRAIN, SHORTEST_STALL, contention_functions
from engine.backends.cpu.runtime.contention import WORDS as CONTENTION_WORDS
from engine.backends.cpu.runtime.sampling_block import DONE, END, ENDS, RESULT, RESULTS, STEPS
from engine.backends.cpu.runtime.step_block import (
    LOGIT_ROWS,
    POSITIONS,
    ROPE_POSITIONS,
    ROWS,
    SERIAL,
    SMALL_BATCH,
    TOKENS,
)

LINE = 8
"""int64 words of a cache line; words that different threads write are on different lines."""
EPOCH, BEGUN, CLOSING = range(3)
PROGRAM, STAGES, STAGE_COUNT, STEP, STEP_ROWS, STEP_LOGIT_ROWS, COUNTERS, QUEUES = range(LINE, LINE + 8)
CONTENTION = 2 * LINE
PARKED = CONTENTION + CONTENTION_WORDS
_SPINS_BEFORE_TIMING = 64
_SPINS_BEFORE_YIELD = 2000
_SPINS_BEFORE_PARKING = 100000
"""About 3 ms: Python code between steps takes up to 1 ms, and a helper that wakes up needs the GIL, which the
window's thread may hold.
"""

# Words of one operation of a program.
FUNCTION, ARGUMENTS, SMALL_TILES, SMALL_BLOCK, BIG_TILES, BIG_BLOCK, ON_LOGIT_ROWS = range(7)
OPERATION = 8

_NAP_US = 50
"""Microseconds of a nap. The system may double them; a window works for about a thousand."""

Words = npt.NDArray[np.int64]

_WINDOWS = os.name == "nt"
_yield_core = types.ExternalFunction("SwitchToThread" if _WINDOWS else "sched_yield", types.int32())
_sleep_us = _yield_core if _WINDOWS else types.ExternalFunction("usleep", types.int32(types.uint32))


def _nap() -> None:
    """Give up the core for a moment."""
    if _WINDOWS:
        _yield_core()  # the shortest sleep there may last 16 ms
    else:
        _sleep_us(_NAP_US)


def _tiles(operation: int, rows: int, logit_rows: int) -> int:
    """Tiles of one operation in a step of `rows` rows, `logit_rows` of them with logits."""
    mine = logit_rows if ld_i64(operation + 8 * ON_LOGIT_ROWS) else rows
    short = mine <= SMALL_BATCH
    count = ld_i64(operation + 8 * (SMALL_TILES if short else BIG_TILES))
    block = ld_i64(operation + 8 * (SMALL_BLOCK if short else BIG_BLOCK))
    return int(count * ((mine + block - 1) // block))


def _run(program: int, first: int, tile: int, rows: int, logit_rows: int, step: int, scratch: int) -> None:
    """Run one tile of the stage that begins with operation `first`."""
    operation = program + 8 * OPERATION * first
    count = tiles(operation, rows, logit_rows)
    while tile >= count:
        tile -= count
        operation += 8 * OPERATION
        count = tiles(operation, rows, logit_rows)
    call_kernel(ld_i64(operation + 8 * FUNCTION), ld_i64(operation + 8 * ARGUMENTS), step, tile, scratch)


def _finish(done: int, epoch: int, count: int) -> None:
    """Add `count` to the finished tiles of a stage."""
    while True:
        word = atomic_load(done)
        if compare_exchange(done, word, (word if word >> 32 == epoch else epoch << 32) + count):
            return


def _wait(done: int, target: int) -> int:
    """Wait until the word `done` is at least `target`; any newer epoch satisfies that.

    Returns the ticks waited, or 0 for a short wait.
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
    """Nap while the core is requested. Returns 0 if the epoch is over or this thread was dropped."""
    state = control + 8 * CONTENTION
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
    control: int, me: int, epoch: int, program: int, first: int, total: int, step: int, rows: int,
    logit_rows: int, words: int, queues: int, done: int, scratch: int,
) -> int:  # fmt: skip
    """Run tiles of the stage that begins with operation `first` until none are left.

    `words` is the address of the queues' counters, `done` that of the stage's count of finished tiles;
    `total` tiles are in `queues` queues. Returns whether to continue with the next stage.
    """
    state = control + 8 * CONTENTION
    mine, queue, left = 0, me, queues
    while left:
        if me >= present(state):
            if mine:
                finish(done, epoch, mine)
                mine = 0
            if not rest(control, me, epoch):
                return 0
        counter = words + 8 * queue
        word = atomic_load(counter)
        if word >> 32 > epoch:
            return 0
        tile = total * queue // queues + (word & 0xFFFFFFFF if word >> 32 == epoch else 0)
        if tile >= total * (queue + 1) // queues:
            queue = queue + 1 if queue + 1 < queues else 0
            left -= 1
            continue
        if not compare_exchange(counter, word, (epoch << 32) + tile + 1 - total * queue // queues):
            continue
        run(program, first, tile, rows, logit_rows, step, scratch)
        mine += 1
    if mine:
        finish(done, epoch, mine)
    return 1 if me < present(state) else rest(control, me, epoch)


def _work(
    control: int, me: int, epoch: int, program: int, stages: int, stage_count: int, step: int, rows: int,
    logit_rows: int, counters: int, queues: int, stamps: int, scratch: int,
) -> None:  # fmt: skip
    """Run tiles of all stages until the program is done, the epoch is over, or this thread is dropped.

    `me` is 0 for the caller, which writes the time at the end of each stage to `stamps`, from the second word
    on, unless `stamps` is 0. `program`, `stages`, `step` and `counters` are addresses of `CapturedProgram`.
    """
    state = control + 8 * CONTENTION
    shortest_stall = SHORTEST_STALL * atomic_load(state + 8 * GRAIN)
    before_done = before_target = 0  # what must be done before the next tile
    for p in range(stage_count):
        first, last = ld_i64(stages + 8 * p), ld_i64(stages + 8 * (p + 1))
        total = 0
        for i in range(first, last):
            total += tiles(program + 8 * OPERATION * i, rows, logit_rows)
        words = counters + 8 * LINE * (2 + (queues - 1) // LINE) * p
        done = words + 8 * LINE * (1 + (queues - 1) // LINE)
        target = (epoch << 32) + total
        if total <= 1:
            if me == 0:
                if total:
                    run(program, first, 0, rows, logit_rows, step, scratch)
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
            control, me, epoch, program, first, total, step, rows, logit_rows, words, queues, done, scratch
        ):
            return
        waited = wait(done, target)
        # In a large batch a tile may take longer than a stall, and even half a core is worth using.
        if waited > shortest_stall and rows <= SMALL_BATCH and shortest_stall:
            stalled(state, waited, ticks())
        if stamps and me == 0:
            st_i64(stamps + 8 * (p + 1), ticks())


def _publish(
    control: int, program: int, stages: int, stage_count: int, step: int, counters: int, helpers: int
) -> int:
    """Publish a program as a new epoch. Returns a bit mask of the helpers that must be woken."""
    active = admit(control + 8 * CONTENTION, ticks())
    epoch = atomic_load(control + 8 * EPOCH) + 1
    atomic_store(control + 8 * BEGUN, epoch)
    atomic_store(control + 8 * PROGRAM, program)
    atomic_store(control + 8 * STAGES, stages)
    atomic_store(control + 8 * STAGE_COUNT, stage_count)
    atomic_store(control + 8 * STEP, step)
    atomic_store(control + 8 * STEP_ROWS, ld_i64(step + 8 * ROWS))
    atomic_store(control + 8 * STEP_LOGIT_ROWS, ld_i64(step + 8 * LOGIT_ROWS))
    atomic_store(control + 8 * COUNTERS, counters)
    atomic_store(control + 8 * QUEUES, helpers + 1)
    atomic_store(control + 8 * EPOCH, epoch)
    asleep = 0
    for h in range(min(helpers, active - 1)):
        if compare_exchange(control + 8 * (PARKED + LINE * h), 1, 0):
            asleep |= 1 << h
    return asleep


def _join(control: int, me: int, epoch: int, stamps: int, scratch: int) -> None:
    """Take part in an epoch with the words published for it."""
    program, stages = atomic_load(control + 8 * PROGRAM), atomic_load(control + 8 * STAGES)
    count, step = atomic_load(control + 8 * STAGE_COUNT), atomic_load(control + 8 * STEP)
    rows, logit_rows = atomic_load(control + 8 * STEP_ROWS), atomic_load(control + 8 * STEP_LOGIT_ROWS)
    counters, queues = atomic_load(control + 8 * COUNTERS), atomic_load(control + 8 * QUEUES)
    if stamps:
        st_i64(stamps, ticks())
    # The words may already belong to a newer epoch; then they are not a consistent set.
    if atomic_load(control + 8 * BEGUN) == epoch:
        work(
            control,
            me,
            epoch,
            program,
            stages,
            count,
            step,
            rows,
            logit_rows,
            counters,
            queues,
            stamps,
            scratch,
        )


def _replay(
    control: int, program: int, stages: int, stage_count: int, step: int, counters: int, helpers: int,
    stamps: int, scratch: int, block: int, published: int,
) -> int:  # fmt: skip
    """Publish a program and take part in it; with the address of its sampling `block`, do so for each step
    that the block asks for, with the token that the one before it sampled.

    The step block has the first one's token and place. Returns a bit mask of the helpers that must be woken
    first: then nothing of the step has run, and the next call, which is told that the program is `published`,
    goes on.
    """
    tokens, places = ld_i64(step + 8 * TOKENS), ld_i64(step + 8 * POSITIONS)
    ropes = ld_i64(step + 8 * ROPE_POSITIONS)
    while not block or ld_i64(block + 8 * DONE) < ld_i64(block + 8 * STEPS):
        if not published:
            asleep: int = publish(control, program, stages, stage_count, step, counters, helpers)
            if asleep:
                return asleep
        join(control, 0, atomic_load(control + 8 * EPOCH), stamps, scratch)
        if not block:
            return 0
        published = 0
        done = ld_i64(block + 8 * DONE)
        token = ld_i64(block + 8 * (RESULTS + RESULT * done))
        st_i64(block + 8 * DONE, done + 1)
        if token < 0:
            return 0
        for i in range(ld_i64(block + 8 * ENDS)):
            if token == ld_i64(block + 8 * (END + i)):
                return 0
        st_i32(tokens, token)
        st_i32(places, ld_i32(places) + 1)
        if ropes != places:
            st_i32(ropes, ld_i32(ropes) + 1)
        st_i64(step + 8 * SERIAL, ld_i64(step + 8 * SERIAL) + 1)
    return 0


def _help(control: int, helper: int, seen: int, scratch: int) -> int:
    """A helper thread's loop over epochs. Returns the last epoch seen (then sleep) or -1 (then end)."""
    parked = control + 8 * (PARKED + LINE * helper)
    state = control + 8 * CONTENTION
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
publish: Any = _publish
stalled: Any = None
admit: Any = None
present: Any = None


def pool_functions(jit: Jit, part: Jit) -> dict[str, Any]:
    """The functions of a thread pool: `jit` compiles `ticks`, `replay` and `help`, which Python calls, and
    `part` the others.
    """
    word, void = types.int64, types.void
    parts: dict[str, Any] = {
        **contention_functions(part),
        "tiles": part(_tiles, word(*[word] * 3)),
        "finish": part(_finish, void(*[word] * 3)),
        "wait": part(_wait, word(word, word)),
        "nap": part(_nap, void()),
    }

    def made(template: Any, name: str, result: Any, count: int, by: Jit = part) -> None:
        parts[name] = by(specialise(template, name, **parts), result(*[word] * count))

    made(_run, "run", void, 7)
    made(_rest, "rest", word, 3)
    made(_take, "take", word, 13)
    made(_work, "work", void, 13)
    made(_join, "join", void, 5)
    made(_publish, "publish", word, 7)
    made(_replay, "replay", word, 11, jit)
    made(_help, "help", word, 4, jit)
    return {**parts, **clock_functions(jit)}
