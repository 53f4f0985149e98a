"""Jobs in turns: generators of one thread that go on beside each other, among others that run alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from desktop.services.engine.job import Job, MakeGenerator
from desktop.services.engine.model_host import ModelHost
from desktop.services.engine.stream_thread import Coalescing, StreamThread
from engine.core import ChatRequest, Message, Text, Waiting
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from tests.desktop.services.engine.test_stream_thread import Listener, counting
from tests.engine.models.oracle import finish
from tests.tiny import write_gguf


@pytest.fixture
def worker(qapp: QCoreApplication) -> Iterator[StreamThread]:
    found = StreamThread("in turns")
    yield found
    assert found.close(timeout_s=5)


def until(
    gate: threading.Event, name: str, trail: list[str]
) -> Callable[[threading.Event], Generator[Any, None, str]]:
    """A job that has nothing new until the gate opens, then says its name twice."""

    def generate(stop: threading.Event) -> Generator[Any, None, str]:
        trail.append(f"{name} begins")
        while not gate.wait(0.001) and not stop.is_set():
            yield Waiting()
        for _ in range(2):
            trail.append(name)
            yield name
        return f"{name} ended"

    return generate


def test_jobs_in_turns_go_on_beside_each_other(qtbot: QtBot, worker: StreamThread) -> None:
    listener, gate, never, trail = Listener(worker), threading.Event(), threading.Event(), list[str]()
    held = worker.start(until(never, "held", trail), in_turns=True)
    first = worker.start(until(gate, "a", trail), in_turns=True)
    second = worker.start(until(gate, "b", trail), in_turns=True)
    qtbot.waitUntil(lambda: len(trail) == 3)
    gate.set()
    qtbot.waitUntil(lambda: listener.ended(first.id) and listener.ended(second.id))
    assert sorted(trail[3:5]) == sorted(trail[5:7]) == ["a", "b"]  # in turn, not one after the other
    assert not listener.ended(held.id)
    held.stop()
    qtbot.waitUntil(lambda: listener.ended(held.id))
    assert ("finished", held.id, "held ended") in listener.seen


def test_a_job_that_runs_alone_waits_for_those_before_it_and_goes_before_those_after_it(
    qtbot: QtBot, worker: StreamThread
) -> None:
    listener, gate, trail = Listener(worker), threading.Event(), list[str]()
    worker.start(until(gate, "a", trail), in_turns=True)
    worker.start(until(gate, "b", trail), in_turns=True)
    worker.start(until(gate, "alone", trail))
    last = worker.start(until(gate, "c", trail), in_turns=True)
    qtbot.waitUntil(lambda: trail == ["a begins", "b begins"])
    gate.set()
    qtbot.waitUntil(lambda: listener.ended(last.id))
    assert sorted(trail[2:6]) == ["a", "a", "b", "b"]
    assert trail[6:] == ["alone begins", "alone", "alone", "c begins", "c", "c"]


def test_what_one_raises_leaves_the_others(qtbot: QtBot, worker: StreamThread) -> None:
    listener, gate, trail = Listener(worker), threading.Event(), list[str]()
    other = worker.start(until(gate, "a", trail), in_turns=True)

    def broken(stop: threading.Event) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    bad = worker.start(broken, in_turns=True)
    qtbot.waitUntil(lambda: listener.ended(bad.id))
    assert not listener.ended(other.id)
    gate.set()
    qtbot.waitUntil(lambda: listener.ended(other.id))
    assert ("finished", other.id, "a ended") in listener.seen
    assert [what[0] for what in listener.seen if what[1] == bad.id] == ["yielded", "failed"]


def test_closing_ends_all_of_them_and_runs_the_last_job(qapp: QCoreApplication) -> None:
    worker, never, trail = StreamThread("closing"), threading.Event(), list[str]()
    for name in "ab":
        worker.start(until(never, name, trail), in_turns=True)

    def last(stop: threading.Event) -> Iterator[int]:
        trail.append("last")
        yield 0

    assert worker.close(last, timeout_s=5)
    assert trail[-1] == "last"
    assert trail.count("last") == 1


def test_a_dead_thread_fails_all_that_had_begun(
    qtbot: QtBot, worker: StreamThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, never, trail = Listener(worker), threading.Event(), list[str]()
    jobs = [worker.start(until(never, name, trail), in_turns=True) for name in "ab"]
    qtbot.waitUntil(lambda: len(trail) == 2)
    alone = worker.start(counting(2, "fine"))

    def die() -> None:
        monkeypatch.undo()
        raise SystemExit

    monkeypatch.setattr(worker, "_go_on", die)
    qtbot.waitUntil(lambda: listener.ended(alone.id))
    assert ("finished", alone.id, "fine") in listener.seen
    for job in jobs:
        assert [what[0] for what in listener.seen if what[1] == job.id and what[0] != "yielded"] == ["failed"]


def test_texts_of_jobs_in_turns_cross_together_job_by_job(qtbot: QtBot) -> None:
    joining = Coalescing(
        lambda event: isinstance(event, str), "".join, stays=lambda event, _last: isinstance(event, Waiting)
    )
    worker, gate = StreamThread("joined", coalescing=joining), threading.Event()
    listener, all_said = Listener(worker), threading.Semaphore(0)

    def letters(stop: threading.Event) -> Iterator[Any]:
        while not gate.wait(0.001):
            yield Waiting()
        yield from "abcdef"
        yield 7
        all_said.release()

    jobs = [worker.start(letters, in_turns=True) for _ in range(3)]
    gate.set()
    assert all(all_said.acquire(timeout=5) for _ in jobs)  # and the GUI thread has not looked yet
    worker.deliver()
    for job in jobs:
        assert listener.events(job.id) == ["abcdef", 7]
    assert worker.close(timeout_s=5)


def test_a_real_model_writes_in_turns_what_it_writes_alone(
    qtbot: QtBot, worker: StreamThread, tmp_path: Path
) -> None:
    host = ModelHost()
    finish(
        host.load(
            write_gguf(tmp_path / "tiny.gguf"),
            LoadSettings(backend="reference"),
            CacheSettings(context_length=512, memory=1),
            threading.Event(),
        )
    )
    listener, gate = Listener(worker), threading.Event()

    def reply(words: str) -> MakeGenerator:
        request = ChatRequest(
            (Message("user", words),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=12)
        )
        return lambda stop: host.answer(request, stop)

    def holding(stop: threading.Event) -> Iterator[str]:
        yield "held"
        assert gate.wait(10)

    def written(job: Job) -> str:
        return "".join(event.text for event in listener.events(job.id) if isinstance(event, Text))

    alone = [worker.start(reply(words)) for words in ("Hello", "What now?", "One more")]
    worker.start(holding)  # so that all of them begin together
    together = [worker.start(reply(words), in_turns=True) for words in ("Hello", "What now?", "One more")]
    gate.set()
    qtbot.waitUntil(lambda: all(listener.ended(job.id) for job in together), timeout=30_000)
    assert [written(job) for job in together] == [written(job) for job in alone]
    assert all(written(job) for job in together)
    order = [what[1] for what in listener.seen if what[0] == "yielded" and isinstance(what[2], Text)]
    first, second = together[0].id, together[1].id
    assert order.index(second) < len(order) - order[::-1].index(first), "neither waited for the other's end"
    assert any(isinstance(event, Waiting) for job in together for event in listener.events(job.id))
    finish(host.unload(threading.Event()))
