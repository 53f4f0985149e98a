"""StreamThread: order, threads, cancelling, errors, queueing, and leftovers."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QObject, QThread, Slot
from pytestqt.qtbot import QtBot

from desktop.services.engine.stream_thread import (
    _END,
    CROWDED,
    ROOMY,
    SHORTEST_MS,
    SLOWEST_MS,
    Coalescing,
    StreamThread,
)
from engine.errors import ModelNotFound


class Listener(QObject):
    """Records each signal with the thread that its slot ran on."""

    def __init__(self, worker: StreamThread) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()
        worker.yielded.connect(self.on_yielded)
        worker.finished.connect(self.on_finished)
        worker.failed.connect(self.on_failed)

    @Slot(int, object)
    def on_yielded(self, job: int, event: object) -> None:
        self.note("yielded", job, event)

    @Slot(int, object)
    def on_finished(self, job: int, result: object) -> None:
        self.note("finished", job, result)

    @Slot(int, str, str)
    def on_failed(self, job: int, sentence: str, details: str) -> None:
        self.note("failed", job, sentence, details)

    def note(self, *what: object) -> None:
        self.threads.add(threading.get_ident())
        self.seen.append(what)

    def ended(self, job: int) -> bool:
        return any(what[0] in ("finished", "failed") and what[1] == job for what in self.seen)

    def events(self, job: int) -> list[Any]:
        return [what[2] for what in self.seen if what[0] == "yielded" and what[1] == job]


@pytest.fixture
def worker(qapp: QCoreApplication) -> Iterator[StreamThread]:
    found = StreamThread("test worker")
    yield found
    assert found.close(timeout_s=5)


@pytest.fixture
def listener(worker: StreamThread) -> Listener:
    return Listener(worker)


def counting(count: int, result: object = None) -> Callable[[threading.Event], Generator[int, None, object]]:
    def generate(stop: threading.Event) -> Generator[int, None, object]:
        yield from range(count)
        return result

    return generate


def test_five_thousand_events_in_order_on_the_gui_thread(
    qtbot: QtBot, worker: StreamThread, listener: Listener
) -> None:
    ran_on: list[int] = []

    def generate(stop: threading.Event) -> Generator[int, None, str]:
        ran_on.append(threading.get_ident())
        yield from range(5000)
        return "the end"

    job = worker.start(generate)
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert listener.events(job.id) == list(range(5000))
    assert listener.seen[-1] == ("finished", job.id, "the end")
    assert listener.threads == {threading.get_ident()}
    assert ran_on != [threading.get_ident()]
    assert QThread.currentThread() is QCoreApplication.instance().thread()  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="these objects are immortal from 3.12 on")
def test_signals_keep_reference_counts(qtbot: QtBot, worker: StreamThread, listener: Listener) -> None:
    singletons: tuple[object, ...] = (None, True, False)

    def generate(stop: threading.Event) -> Generator[object, None, None]:
        for _ in range(5000):
            yield from singletons

    gc.collect()  # what earlier tests left
    before = [sys.getrefcount(thing) for thing in singletons]
    job = worker.start(generate)
    qtbot.waitUntil(lambda: listener.ended(job.id), timeout=30_000)
    assert listener.events(job.id) == [*singletons] * 5000
    listener.seen.clear()
    gc.collect()
    for thing, count in zip(singletons, before, strict=True):
        assert abs(sys.getrefcount(thing) - count) < 500, f"references of {thing} moved"


def test_stop_ends_a_job_with_its_own_last_event(
    qtbot: QtBot, worker: StreamThread, listener: Listener
) -> None:
    closed = threading.Event()

    def generate(stop: threading.Event) -> Generator[str, None, str]:
        try:
            yield "begun"
            assert stop.wait(10)
            yield "stopped"
            return "result"
        finally:
            closed.set()

    job = worker.start(generate)
    qtbot.waitUntil(lambda: listener.events(job.id) == ["begun"])
    assert not job.stopping
    job.stop()
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert listener.seen[1:] == [("yielded", job.id, "stopped"), ("finished", job.id, "result")]
    assert closed.is_set()


def test_an_error_follows_the_text_before_it(qtbot: QtBot, worker: StreamThread, listener: Listener) -> None:
    def generate(stop: threading.Event) -> Generator[str, None, None]:
        yield "some text"
        raise ModelNotFound("There is no model here: choose another folder.")

    job = worker.start(generate)
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert listener.seen == [
        ("yielded", job.id, "some text"),
        ("failed", job.id, "There is no model here: choose another folder.", ""),
    ]


def test_a_bug_is_reported_with_its_traceback_and_logged(
    qtbot: QtBot, worker: StreamThread, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    class Heavy:
        """Stands for a tensor in a frame of the traceback."""

    alive: list[weakref.ref[Heavy]] = []

    def generate(stop: threading.Event) -> Generator[str, None, None]:
        tensor = Heavy()
        alive.append(weakref.ref(tensor))
        yield "text"
        raise ZeroDivisionError("in the middle of a kernel")

    with caplog.at_level(logging.ERROR):
        number = worker.start(generate).id
        qtbot.waitUntil(lambda: listener.ended(number))
    kind, _, sentence, details = listener.seen[-1]
    assert kind == "failed"
    assert sentence.startswith("Something went wrong in Inglenook")
    assert "ZeroDivisionError" in sentence
    assert "in the middle of a kernel" in details
    assert "in generate" in details
    assert "in the middle of a kernel" in caplog.text
    del generate
    gc.collect()
    qtbot.waitUntil(lambda: alive[0]() is None)  # nothing keeps the frames

    again = worker.start(counting(1))  # the thread lives on
    qtbot.waitUntil(lambda: listener.ended(again.id))


def test_an_error_before_the_first_event(qtbot: QtBot, worker: StreamThread, listener: Listener) -> None:
    def make(stop: threading.Event) -> Generator[str, None, None]:
        raise LookupError("no generator at all")

    job = worker.start(make)
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert listener.seen[0][0] == "failed"
    assert "no generator at all" in listener.seen[0][3]


def test_jobs_queue_and_a_stopped_one_never_begins(
    qtbot: QtBot, worker: StreamThread, listener: Listener
) -> None:
    gate = threading.Event()

    def gated(stop: threading.Event) -> Generator[str, None, None]:
        assert gate.wait(10)
        yield "first"

    first = worker.start(gated)
    second = worker.start(counting(3, "second"))
    third = worker.start(counting(1))
    second.stop()
    gate.set()
    qtbot.waitUntil(lambda: listener.ended(third.id))
    assert [what[:3] for what in listener.seen] == [
        ("yielded", first.id, "first"),
        ("finished", first.id, None),
        ("finished", second.id, None),
        ("yielded", third.id, 0),
        ("finished", third.id, None),
    ]


def test_close_stops_what_runs_and_runs_the_last_job(qapp: QCoreApplication) -> None:
    worker = StreamThread("closing")
    begun, order = threading.Event(), []

    def forever(stop: threading.Event) -> Generator[int, None, None]:
        try:
            while not stop.is_set():
                begun.set()
                yield 1
                time.sleep(0.001)
        finally:
            order.append("forever ended")

    def last(stop: threading.Event) -> Generator[int, None, None]:
        order.append("last began")
        yield 1

    worker.start(forever)
    waiting = worker.start(counting(10))
    assert begun.wait(5)
    assert worker.close(last=last, timeout_s=5)
    assert order == ["forever ended", "last began"]
    assert waiting.stopping
    assert worker.close()
    assert "closing" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(RuntimeError, match="closed"):
        worker.start(counting(1))


def test_close_stops_all_jobs_even_queued_ones(qapp: QCoreApplication) -> None:
    worker, begun = StreamThread("test worker"), list[int]()
    entered = threading.Event()

    def waiting(stop: threading.Event) -> Generator[int, None, None]:
        begun.append(len(begun))
        entered.set()
        while not stop.wait(0.01):
            yield 0

    jobs = [worker.start(waiting) for _ in range(3)]
    assert entered.wait(30)
    ended = worker.close(timeout_s=30)
    stopped = [job.stop_event.is_set() for job in jobs]
    for job in jobs:
        job.stop()
    assert (ended, stopped) == (True, [True] * 3)
    assert begun == [0]


def test_close_gives_up_on_a_job_that_hangs(qapp: QCoreApplication, caplog: pytest.LogCaptureFixture) -> None:
    worker = StreamThread("hanging")
    begun, release = threading.Event(), threading.Event()

    def hang(stop: threading.Event) -> Generator[int, None, None]:
        begun.set()
        release.wait(10)
        yield 1

    worker.start(hang)
    assert begun.wait(5)
    assert not worker.close(timeout_s=0.05)
    assert "hanging did not end" in caplog.text
    release.set()
    assert worker.close(timeout_s=5)


def test_ended_jobs_are_forgotten(qtbot: QtBot, worker: StreamThread, listener: Listener) -> None:
    class Request:
        pass

    request = Request()
    alive = weakref.ref(request)

    def make(stop: threading.Event, request: Request = request) -> Generator[int, None, None]:
        yield 1

    number = worker.start(make).id
    qtbot.waitUntil(lambda: listener.ended(number))
    del make, request
    gc.collect()
    qtbot.waitUntil(lambda: alive() is None)


def test_coalesced_events_cross_together_in_order_and_none_gets_stuck(qtbot: QtBot) -> None:
    worker = StreamThread("gathering", coalescing=Coalescing(lambda event: isinstance(event, str), "".join))
    listener = Listener(worker)
    go_on = threading.Event()

    def generate(stop: threading.Event) -> Generator[object, None, str]:
        yield from ("a", "b", "c", 1, "d", "e")
        go_on.wait(5)
        yield from ("f", "g", 2)
        return "the end"

    job = worker.start(generate)
    qtbot.waitUntil(lambda: "".join(str(event) for event in listener.events(job.id)) == "abc1de")
    go_on.set()
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert "".join(str(event) for event in listener.events(job.id)) == "abc1defg2"
    assert 4 <= len(listener.events(job.id)) < 9
    assert listener.seen[-1] == ("finished", job.id, "the end")
    assert listener.threads == {threading.get_ident()}
    assert worker.close(timeout_s=5)


def test_the_last_event_that_waits_crosses_with_the_next_coalesced_ones(qtbot: QtBot) -> None:
    coalescing = Coalescing(
        lambda event: isinstance(event, str), "".join, lambda event: isinstance(event, int)
    )
    worker = StreamThread("figures", coalescing=coalescing)
    listener = Listener(worker)
    go_on = threading.Event()

    def generate(stop: threading.Event) -> Generator[object, None, str]:
        yield "a"
        go_on.wait(5)
        yield from ("b", 1, "c", 2, 3, "d")
        return "the end"

    job = worker.start(generate)
    qtbot.waitUntil(lambda: listener.events(job.id) == ["a"])
    worker.deliver()
    go_on.set()
    worker._thread.join(0.2)  # all of it has crossed before this thread looks again
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert listener.events(job.id) == ["a", "bcd", 3]
    assert worker.close(timeout_s=5)


@pytest.mark.parametrize("backoff", [CROWDED, ROOMY])
@pytest.mark.parametrize("cost_s", [0.0, 0.002, 0.01, 0.5])
def test_the_interval_follows_the_cost_of_showing_text(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, backoff: float, cost_s: float
) -> None:
    worker = StreamThread("pacing", coalescing=Coalescing(lambda event: isinstance(event, str), "".join))
    worker.backoff = backoff
    listener, clock, pauses = Listener(worker), [0.0], list[int]()
    pause = worker._pause
    monkeypatch.setattr("desktop.services.engine.stream_thread.time.thread_time", lambda: clock[0])
    monkeypatch.setattr(worker, "_pause", lambda: pauses.append(pause()) or pauses[-1])

    def show(*_what: object) -> None:
        clock[0] += cost_s

    worker.yielded.connect(show)
    job = worker.start(lambda stop: (part for part in "x"))
    qtbot.waitUntil(lambda: listener.ended(job.id))
    assert worker.close(timeout_s=5)
    assert max(pauses) == min(SLOWEST_MS, max(SHORTEST_MS, 1000 * backoff * cost_s))


def test_events_that_crossed_are_delivered_after_closing(qtbot: QtBot) -> None:
    worker = StreamThread(
        "closing early", coalescing=Coalescing(lambda event: isinstance(event, str), "".join)
    )
    listener = Listener(worker)
    job = worker.start(lambda stop: (part for part in ("a", "b")))
    worker._jobs.put(_END)  # as `close` does, which would stop the job
    worker._thread.join(5)
    assert worker.close(timeout_s=5)
    worker.deliver()
    assert "".join(listener.events(job.id)) == "ab"
    assert listener.ended(job.id)
