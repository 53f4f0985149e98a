"""The threads of a captured program: who takes part, and what a thread without its core costs the others."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest

from engine.backends.cpu.codegen.kernel_cache import KERNELS, SIGNATURE
from engine.backends.cpu.codegen.memory_ops import atomic_add, ld_i64
from engine.backends.cpu.runtime.clock import ticks, ticks_per_second
from engine.backends.cpu.runtime.contention import (
    ACTIVE,
    DEBT,
    INTERVAL,
    NEXT,
    PARKINGS,
    WORDS,
    contention_functions,
    prepare,
)
from engine.backends.cpu.runtime.thread_pool import CapturedProgram, ThreadPool
from engine.backends.cpu.runtime.work_stealing import CONTENTION, PARKED, Words, pool_functions
from engine.platform import core_yield

MS = 1000
"""Ticks of a millisecond in the tests that drive the state by hand."""


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    for _ in KERNELS.compile(["read_memory"]):
        pass


@cache
def _contention() -> dict[str, Any]:
    """The functions that only other compiled ones call, compiled for calls from here."""
    return contention_functions(lambda function, signature: numba.njit(signature)(function))


def _state(threads: int) -> Words:
    state = np.zeros(WORDS, np.int64)
    prepare(state, threads, 1000.0 * MS)
    return state


def _stalled(state: Words, waited: float, at: float) -> None:
    _contention()["stalled"](state.ctypes.data, int(waited * MS), int(at * MS))


def _robbed(state: Words, at: float) -> None:
    """So many stalls of 2 ms without a pause, the last until `at`, that one thread is given up."""
    for before in reversed(range(6 if state[ACTIVE] == 2 else 5)):
        _stalled(state, 2, at - 2 * before)


def _admit(state: Words, at: float) -> int:
    return int(_contention()["admit"](state.ctypes.data, int(at * MS)))


@pytest.mark.slow
def test_one_neighbour_costs_one_thread_of_eight() -> None:
    state = _state(8)
    _robbed(state, 1000)
    assert state[ACTIVE] == 7
    assert state[NEXT] == 1050 * MS
    assert _admit(state, 1049) == 7


def test_a_stall_that_many_waited_for_counts_once() -> None:
    state = _state(8)
    for thread in range(7):
        _stalled(state, 2 + 0.01 * thread, 1000 + 0.01 * thread)
    assert state[ACTIVE] == 8
    assert state[DEBT] == 2 * MS
    _stalled(state, 2, 1002)
    assert state[DEBT] == (4 - 2 / 16) * MS


def test_a_computer_that_is_away_once_keeps_its_threads() -> None:
    state = _state(2)
    _stalled(state, 47, 1000)
    assert state[ACTIVE] == 2


def test_seldom_interruptions_are_borne() -> None:
    """A window that paints for a millisecond every 16: the second thread still brings in more than that."""
    state = _state(2)
    for frame in range(1000):
        _stalled(state, 1, 1000 + 16 * frame)
    assert state[PARKINGS] == 0


def test_a_window_that_shows_a_reply_is_borne() -> None:
    """Ten times a second a few milliseconds without a pause, as its frames take them."""
    state = _state(2)
    for frame in range(50):
        for part in range(4):
            _stalled(state, 2, 1000 + 100 * frame + 2 * part)
    assert state[PARKINGS] == 0


def test_half_of_a_core_is_not_enough() -> None:
    """Stalls of 2 of every 6 ms are more than a second thread is worth."""
    state = _state(2)
    for slot in range(14):
        _stalled(state, 2, 1000 + 6 * slot)
    assert state[ACTIVE] == 1


def test_trials_grow_rarer_while_they_fail_and_the_caller_always_stays() -> None:
    state, now, waits = _state(2), 1000.0, []
    _robbed(state, now)
    for _ in range(8):
        begun = int(state[NEXT]) / MS
        waits.append(begun - now)
        assert _admit(state, begun - 0.01) == 1
        assert _admit(state, begun) == 2
        for now in (begun + 2, begun + 4, begun + 6):
            _stalled(state, 2, now)
        assert state[ACTIVE] == 1
        _stalled(state, 50, now + 60)
        assert state[ACTIVE] == 1
    assert waits == [50, 100, 200, 400, 800, 1000, 1000, 1000]


def test_threads_come_back_one_by_one_once_the_neighbours_are_gone() -> None:
    state = _state(4)
    for slot in range(3):
        _robbed(state, 1000 + 20 * slot)
    assert state[ACTIVE] == 1
    counts = [_admit(state, 1040 + at) for at in range(0, 500, 10)]
    assert counts[-1] == 4
    assert [b - a for a, b in pairwise(counts)].count(1) == 3
    # A later neighbour is a new one: the first interval is the short one again.
    _robbed(state, 2000)
    assert state[INTERVAL] == 50 * MS


def _rate() -> float:
    """Ticks per second."""
    return ticks_per_second(KERNELS.pool["ticks"])


def test_the_counter_counts_time() -> None:
    rate = _rate()
    read = KERNELS.pool["ticks"]
    before, first, after = time.perf_counter(), read(), time.perf_counter()
    time.sleep(0.05)
    earliest, counted, latest = time.perf_counter() - after, read() - first, time.perf_counter() - before
    assert 0.9 * earliest < counted / rate < 1.1 * latest  # whatever held this thread up between two looks


@contextmanager
def _pool(
    kernel: Any, argument: Words, stages: int, tiles: int, functions: dict[str, Any], threads: int
) -> Iterator[tuple[ThreadPool, Any]]:
    """A thread pool of threads, and a function that replays a program of equal stages."""
    operations = np.tile(
        np.array([kernel.address, argument.ctypes.data, tiles, 1, tiles, 1, 0, 0], np.int64), stages
    )
    program = CapturedProgram(
        operations, np.arange(stages + 1, dtype=np.int64), np.ones(8, np.int64), threads
    )
    pool = ThreadPool(functions, threads, 4096)
    try:
        yield pool, lambda stamps=None: pool.replay(program, stamps)
    finally:
        pool.close()


def _count(args: int, step: int, tile: int, scratch: int) -> None:
    atomic_add(args + 8 * tile, 1)


def _slow_in_helpers(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile of `args[1]` ticks; of `args[2]` in a helper while `args[3]` is set, as if it lost its core."""
    mine = ld_i64(scratch)
    until = ticks() + ld_i64(args + 8 * (2 if mine and ld_i64(args + 24) else 1))
    while ticks() < until:
        pass


def _slow_and_counted(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile of `args[0]` ticks, counted in `args[1]` for the caller and `args[2]` for a helper."""
    until = ticks() + ld_i64(args)
    while ticks() < until:
        pass
    atomic_add(args + (16 if ld_i64(scratch) else 8), 1)


@pytest.mark.parametrize("tiles", [1, 2, 7])
@pytest.mark.parametrize(("threads", "replays"), [(1, 300), (3, 300), (8, 20), (9, 20)])
def test_every_tile_runs_once(threads: int, replays: int, tiles: int) -> None:
    """The counters of up to eight queues share a line of memory."""
    counts = np.zeros(tiles, np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 50, tiles, KERNELS.pool, threads) as (_, replay):
        for _ in range(replays):
            replay()
    assert np.array_equal(counts, np.full(tiles, 50 * replays))


def test_a_helper_that_never_gets_a_core_stops_nobody() -> None:
    release = threading.Event()

    def never(control: int, helper: int, seen: int, scratch: int) -> int:
        release.wait()
        return -1

    counts = np.zeros(9, np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 20, 9, {**KERNELS.pool, "help": never}, 3) as (
        _,
        replay,
    ):
        for _ in range(10):
            replay()
        assert np.array_equal(counts, np.full(9, 200))
        release.set()


def _active(pool: ThreadPool) -> int:
    """Threads that take part at present, the caller included."""
    return int(pool._words[CONTENTION + ACTIVE])


@pytest.mark.slow
def test_a_helper_that_keeps_losing_its_core_is_left_out_and_taken_back() -> None:
    """The thread pool's milliseconds are twenty here, beside which those that other programs take are few."""
    rate = 20 * _rate()
    argument = np.array([0, rate * 20e-6, rate * 2.5e-3, 1], np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_slow_in_helpers), argument, 4, 10, KERNELS.pool, 2) as (pool, replay):
        prepare(pool._words[CONTENTION:PARKED], 2, rate)
        pool._scratch[1].view(np.int64)[0] = 1
        until = time.monotonic() + 20
        while _active(pool) == 2 and time.monotonic() < until:
            replay()
        assert _active(pool) == 1
        argument[3] = 0
        while _active(pool) == 1 and time.monotonic() < until:
            replay()
        assert _active(pool) == 2


@pytest.fixture
def one_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A computer with fewer cores than any thread pool has threads."""
    monkeypatch.setattr("engine.backends.cpu.runtime.thread_pool.usable_cpus", lambda: 1)
    yield
    core_yield.give_back()


@pytest.mark.slow
@pytest.mark.usefixtures("one_cpu")
def test_while_a_thread_of_this_process_asks_for_room_a_helper_leaves() -> None:
    counts = np.zeros(9, np.int64)
    slow = np.array([_rate() * 20e-6, 0, 0], np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_slow_and_counted), slow, 4, 50, KERNELS.pool, 2) as (pool, replay):
        pool._scratch[1].view(np.int64)[0] = 1
        core_yield.ask()
        replay()  # the helper may still be at a tile of the replay before
        slow[1:] = 0
        for _ in range(5):
            replay()
        assert slow[1:].tolist() == [5 * 4 * 50, 0]  # no tile was a helper's
        assert _active(pool) == 2  # nothing was given up
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 50, 9, KERNELS.pool, 3) as (_, replay):
        for turn in range(3000):
            core_yield.ask() if turn % 3 else core_yield.give_back()
            replay()
    assert np.array_equal(counts, np.full(9, 50 * 3000))


@pytest.mark.usefixtures("one_cpu")
def test_a_helper_that_left_comes_back_within_the_replay() -> None:
    counts = np.array([_rate() * 20e-6, 0, 0], np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_slow_and_counted), counts, 300, 50, KERNELS.pool, 2) as (pool, replay):
        pool._scratch[1].view(np.int64)[0] = 1
        for _ in range(20):  # a helper that loses its core to another program is given up for a while
            replay()
            counts[1:] = 0
            core_yield.ask()
            giver = threading.Timer(0.02, core_yield.give_back)
            giver.start()
            replay()  # 300 ms of one thread's work
            giver.join()
            assert counts[1] > 500  # the helper was away for 20 ms
            assert counts[1:].sum() == 300 * 50
            if counts[2]:
                break
        assert counts[2] > 0


@pytest.mark.usefixtures("one_cpu")
def test_room_that_is_asked_for_and_given_back_in_the_middle_loses_no_tile() -> None:
    counts, over = np.zeros(9, np.int64), threading.Event()

    def ask() -> None:
        turn = 0
        while not over.wait(0.0002 * (turn % 7)):
            turn += 1
            core_yield.ask() if turn % 2 else core_yield.give_back()
        core_yield.give_back()

    asker = threading.Thread(target=ask)
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 200, 9, KERNELS.pool, 3) as (_, replay):
        asker.start()
        for _ in range(5000):
            replay()
        over.set()
        asker.join()
    assert np.array_equal(counts, np.full(9, 200 * 5000))


def test_with_cores_to_spare_nobody_leaves() -> None:
    state = _state(2)
    core_yield.ask()
    assert _contention()["present"](state.ctypes.data) == 2
    prepare(state, 2, 1000.0 * MS, core_yield.address())
    assert _contention()["present"](state.ctypes.data) == 1
    state[ACTIVE] = 1  # one is away already
    assert _contention()["present"](state.ctypes.data) == 1
    core_yield.give_back()
    state[ACTIVE] = 2
    assert _contention()["present"](state.ctypes.data) == 2


def test_a_replay_notes_its_start_and_the_end_of_each_stage() -> None:
    rate = _rate()
    stamps, argument = np.zeros(7, np.int64), np.array([0, rate * 20e-6, 0, 0], np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_slow_in_helpers), argument, 6, 10, KERNELS.pool, 1) as (_, replay):
        begun = KERNELS.pool["ticks"]()
        replay(stamps)
        ended = KERNELS.pool["ticks"]()
    times = np.diff([begun, *stamps, ended]) / rate
    assert (times[1:-1] >= 200e-6).all()
    assert times.sum() >= 1.2e-3


def test_each_thread_loop_is_compiled_once() -> None:
    """Each has all that runs tiles within it: a third of a second of a first start."""
    made: list[str] = []

    def jit(function: Any, signature: Any) -> Any:
        made.append(function.__name__)
        return function

    pool_functions(jit, lambda function, signature: function)
    assert sorted(made) == ["_read_ticks", "help", "replay"]


def test_threads_end_when_the_last_of_their_programs_is_closed() -> None:
    counts = np.zeros(9, np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 20, 9, KERNELS.pool, 3) as (pool, replay):
        helpers = list(pool._threads)
        pool.users = 2
        pool.close()
        replay()
        assert all(helper.is_alive() for helper in helpers)
    assert not any(helper.is_alive() for helper in helpers)
    assert np.array_equal(counts, np.full(9, 20))


def test_programs_that_nobody_closes_end_their_threads_with_the_last_of_them() -> None:
    counts = np.zeros(9, np.int64)
    with _pool(numba.cfunc(SIGNATURE)(_count), counts, 20, 9, KERNELS.pool, 3) as (pool, replay):
        helpers = list(pool._threads)
        first, second = [pool, replay], [pool, replay]  # two programs beside each other
        del first
        gc.collect()
        second[1]()
        assert all(helper.is_alive() for helper in helpers)
        pool.users = 2  # neither closes it
    del pool, replay, second
    gc.collect()
    for helper in helpers:
        helper.join(20)
    assert not any(helper.is_alive() for helper in helpers)
    assert np.array_equal(counts, np.full(9, 20))
