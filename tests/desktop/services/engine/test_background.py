"""Background: each job's callbacks come on the GUI thread, and not after it was dropped or closed."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QObject
from pytestqt.qtbot import QtBot

from desktop.services.engine.background import Background
from engine.errors import ModelNotFound


@pytest.fixture
def background(qtbot: QtBot) -> Iterator[Background]:
    parent = QObject()
    found = Background("test", parent)
    yield found
    assert found.close(timeout_s=5)


def test_callbacks_of_two_jobs_are_kept_apart(qtbot: QtBot, background: Background) -> None:
    seen: list[tuple[str, object, bool]] = []
    here = threading.get_ident()

    def note(name: str, value: object) -> None:
        seen.append((name, value, threading.get_ident() == here))

    def counting(stop: threading.Event) -> Generator[int, None, str]:
        yield from range(2)
        return "end"

    def broken(stop: threading.Event) -> int:
        raise ModelNotFound("There is no such file.")

    background.start(counting, lambda result: note("ended", result), event=lambda event: note("event", event))
    background.call(broken, lambda result: note("wrong", result), lambda words, _: note("failed", words))
    background.call(broken, lambda result: note("quiet", result))
    qtbot.waitUntil(lambda: len(seen) == 5)
    expected = [("event", 0), ("event", 1), ("ended", "end")]
    assert seen == [
        (*each, True) for each in [*expected, ("failed", "There is no such file."), ("quiet", None)]
    ]


def test_nothing_is_heard_of_a_dropped_job(qtbot: QtBot, background: Background) -> None:
    begun, go, seen = threading.Event(), threading.Event(), list[str]()

    def work(stop: threading.Event) -> str:
        begun.set()
        assert go.wait(10)
        return "stopped" if stop.is_set() else "not stopped"

    results: list[str] = []
    job = background.call(lambda stop: results.append(work(stop)), lambda _result: seen.append("dropped"))
    assert begun.wait(10)
    background.drop(job)
    go.set()
    background.call(lambda stop: None, lambda _result: seen.append("next"))
    qtbot.waitUntil(lambda: seen != [])
    assert (results, seen) == (["stopped"], ["next"])


def test_after_closing_nothing_starts_and_nothing_is_heard(qtbot: QtBot, background: Background) -> None:
    seen: list[object] = []
    background.call(lambda stop: 1, seen.append)
    assert background.close(timeout_s=5)
    job = background.call(lambda stop: 2, seen.append)
    assert not job.stopping
    QCoreApplication.processEvents()
    assert seen == []
