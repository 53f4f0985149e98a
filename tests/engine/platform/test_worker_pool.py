"""Jobs in worker processes: every job comes back once, whatever happens to its worker."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import weakref
from collections.abc import Sequence

import psutil
import pytest

from engine.platform.worker_pool import WorkerPool, serve

MODULE = "tests.engine.platform.test_worker_pool"
_left: list[weakref.ref[object]] = []


class _Circle:
    """What only a search for garbage removes."""

    def __init__(self) -> None:
        self.itself = self


def main() -> None:
    serve(do)


def do(job: str) -> str:
    if job == "die":
        os._exit(3)
    if job == "circle":
        _left.append(weakref.ref(_Circle()))
    if job == "left":
        return f"{[circle() is not None for circle in _left]}, searched while working: {gc.isenabled()}"
    if job == "print":
        print("not an answer", flush=True)
        os.write(1, b"nor this\n")
    return job.upper()


def jobs(*names: str) -> Sequence[tuple[str, bytes]]:
    return [(name, pickle.dumps(name)) for name in names]


def outcomes(pool: WorkerPool[str], count: int) -> dict[str, object]:
    return dict(pool.outcomes.get(timeout=60) for _ in range(count))


def test_every_job_is_answered_whatever_it_prints() -> None:
    pool = WorkerPool(MODULE, jobs("one", "print", "three"), 2)
    try:
        assert outcomes(pool, 3) == {"one": "ONE", "print": "PRINT", "three": "THREE"}
        assert pool.take() is None
    finally:
        pool.close()


def test_garbage_is_searched_for_between_two_jobs() -> None:
    pool = WorkerPool(MODULE, jobs("circle", "left"), 1)
    try:
        assert outcomes(pool, 2)["left"] == "[False], searched while working: False"
    finally:
        pool.close()


def test_the_job_of_a_dead_worker_and_those_after_it_come_back_without_an_answer() -> None:
    pool = WorkerPool(MODULE, jobs("one", "die", "three"), 1)
    try:
        assert outcomes(pool, 3) == {"one": "ONE", "die": None, "three": None}
    finally:
        pool.close()


def test_the_other_workers_go_on() -> None:
    pool = WorkerPool(MODULE, jobs("die", *"abcdefgh"), 2)
    try:
        assert outcomes(pool, 9) == {"die": None, **{name: name.upper() for name in "abcdefgh"}}
    finally:
        pool.close()


def test_without_workers_all_jobs_can_be_taken_back() -> None:
    pool = WorkerPool(MODULE, jobs("one", "two"), 0)
    assert [pool.take(), pool.take(), pool.take()] == ["one", "two", None]
    pool.close()


def test_a_worker_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    pool = WorkerPool(MODULE, jobs("one", "two"), 2)
    try:
        assert outcomes(pool, 2) == {"one": None, "two": None}
    finally:
        pool.close()


def test_closing_ends_workers_in_mid_job() -> None:
    pool = WorkerPool(MODULE, jobs("one", *["x"] * 1000), 2)
    outcomes(pool, 1)
    pool.close()
    assert not [child for child in psutil.Process().children() if MODULE in " ".join(child.cmdline())]
