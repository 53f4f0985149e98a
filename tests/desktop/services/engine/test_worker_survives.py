"""StreamThread survives whatever a job raises, and ends every job with exactly one signal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from desktop.services.engine.job import is_no_memory
from desktop.services.engine.stream_thread import Coalescing, StreamThread
from engine.errors import BadCheckpoint, EngineError
from tests.desktop.services.engine.test_stream_thread import Listener, counting


class Panic(BaseException):
    """What pyo3 raises for a panic of a Rust library is not an Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class MuteSentence(EngineError):
    def __str__(self) -> str:
        raise ValueError("no words")


RAISED: dict[str, Callable[[], BaseException]] = {
    "panic": lambda: Panic("index out of range"), "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt, "leave": GeneratorExit, "memory": MemoryError,
    "bug": lambda: ZeroDivisionError("x"), "known": lambda: BadCheckpoint("It is broken."),
    "surrogate": lambda: BadCheckpoint("a\udcffb.gguf is broken."),
    "surrogate bug": lambda: OSError("a\udcffb"), "mute": Mute, "mute sentence": MuteSentence,
    "recursion": RecursionError, "stop": lambda: StopIteration(7), "unicode": lambda: UnicodeError("\ud800"),
}  # fmt: skip
EVENTS = 3


def raising(
    at: int, error: Callable[[], BaseException]
) -> Callable[[threading.Event], Generator[Any, None, Any]]:
    """A job that raises when it is created (0), before event `at`, or when it is closed."""

    def generate() -> Generator[Any, None, Any]:
        for number in range(1, EVENTS + 1):
            if number == at:
                raise error()
            yield str(number)
        if at > EVENTS:
            raise error()

    def make(stop: threading.Event) -> Generator[Any, None, Any]:
        if at == 0:
            raise error()
        return generate()

    return make


@pytest.fixture(params=["one by one", "gathered"])
def worker(request: pytest.FixtureRequest, qapp: QCoreApplication) -> Iterator[StreamThread]:
    gathered = (
        Coalescing(lambda event: isinstance(event, str), "".join) if request.param == "gathered" else None
    )
    found = StreamThread("surviving", coalescing=gathered)
    yield found
    assert found.close(timeout_s=5)


def endings(listener: Listener, job: int) -> list[tuple[Any, ...]]:
    return [what for what in listener.seen if what[0] in ("finished", "failed") and what[1] == job]


@pytest.mark.parametrize("kind", RAISED)
def test_one_end_whatever_is_raised_at_every_event(qtbot: QtBot, worker: StreamThread, kind: str) -> None:
    listener = Listener(worker)
    jobs = [worker.start(raising(at, RAISED[kind])) for at in range(EVENTS + 2)]
    last = worker.start(counting(1, "fine"))
    qtbot.waitUntil(lambda: listener.ended(last.id))
    for at, job in enumerate(jobs):
        (ending,) = endings(listener, job.id)
        assert ending[0] == "failed", ending
        assert ending[2], "a sentence"
        assert "".join(listener.events(job.id)) == "123"[: max(0, at - 1)], "what came before it was reported"
        assert listener.seen.index(ending) == max(
            i for i, what in enumerate(listener.seen) if what[1] == job.id
        )
    assert endings(listener, last.id) == [("finished", last.id, "fine")]


def test_a_dead_thread_is_replaced_and_the_queue_continues(
    qtbot: QtBot, worker: StreamThread, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed from outside at the worst moment: just before it runs a job."""
    listener, go_on = Listener(worker), worker._go_on

    def die() -> None:
        if worker._begun[0].job.id == 2:
            raise Panic
        go_on()

    monkeypatch.setattr(worker, "_go_on", die)
    with caplog.at_level(logging.ERROR):
        jobs = [worker.start(counting(1, number)) for number in range(3)]
        qtbot.waitUntil(lambda: listener.ended(jobs[2].id))
        qtbot.waitUntil(lambda: listener.ended(jobs[1].id))
    assert [endings(listener, job.id)[0][0] for job in jobs] == ["finished", "failed", "finished"]
    assert all(len(endings(listener, job.id)) == 1 for job in jobs)
    assert "is replaced" in caplog.text
    monkeypatch.undo()
    again = worker.start(counting(1))
    qtbot.waitUntil(lambda: listener.ended(again.id))


def test_close_still_ends_a_replaced_thread(qapp: QCoreApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = StreamThread("dying")

    def die() -> None:
        raise Panic

    monkeypatch.setattr(worker, "_go_on", die)
    for _ in range(5):
        worker.start(counting(1))
    assert worker.close(timeout_s=5)


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_means_that_memory_ran_out(error: BaseException, expected: bool) -> None:
    assert is_no_memory(error) == expected


def test_what_crosses_while_events_are_shown_waits_for_the_next_time(qtbot: QtBot) -> None:
    """Or a quick worker would never let the window go on."""
    thread = StreamThread("quick", coalescing=Coalescing(lambda event: False, list))
    shown, begun, passed = list[int](), threading.Event(), threading.Event()

    def show(_job: int, event: int) -> None:
        shown.append(event)
        begun.set()
        assert passed.wait(5)

    def numbers(_stop: threading.Event) -> Iterator[int]:
        yield 1
        assert begun.wait(5)
        yield 2
        passed.set()

    thread.yielded.connect(show)
    job = thread.start(numbers)
    ended: list[int] = []
    thread.finished.connect(lambda number, _result: ended.append(number))
    delivered: list[int] = []
    while not shown:
        thread.deliver()
        delivered.append(len(shown))
    assert delivered[-1] == 1
    qtbot.waitUntil(lambda: ended == [job.id])
    assert shown == [1, 2]
    assert thread.close(timeout_s=5)
