"""The thread that owns the model: one model at a time, work in turns, and an end for everything."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.chat import LocalChat
from engine.core import Loading
from engine.server.failure import CHANGED, CLOSING, LOADING, Failure
from engine.server.model_thread import ModelThread

WAIT_S = 20


class FakeChat:
    """What the thread uses of a model."""

    context_length = 64
    adapters = SimpleNamespace(usual=(("a", 0.5),))
    thinking = (("<t>", "</t>"),)
    info = SimpleNamespace(
        thinking=(("<u>", "</u>"),), defaults=(("top_k", 3.0),), architecture="llama",
        format="gguf", quantisation="Q8_0", reads_pictures=True, parameters=7, file_bytes=9, why_no_text="",
        thinking_levels=(),
    )  # fmt: skip

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Outlet:
    """Keeps what comes, for the test's thread."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, event: Any) -> None:
        self.events.put(event)

    def end(self, failure: Failure | None) -> None:
        self.events.put(("end", failure))

    def next(self) -> Any:
        return self.events.get(timeout=WAIT_S)

    def all(self) -> tuple[list[Any], Failure | None]:
        found = []
        while not (isinstance(event := self.next(), tuple) and event[0] == "end"):
            found.append(event)
        return found, event[1]


class Models:
    """Two models, "one" and "two", and the chats that were opened; `gate` holds the loading of "two"."""

    def __init__(self) -> None:
        self.chats: list[FakeChat] = []
        self.gate = threading.Event()
        self.fails = False
        self.thread = ModelThread({"one": self.open(lambda: True), "two": self.open(self.gated)})

    def gated(self) -> bool:
        return self.gate.wait(WAIT_S)

    def open(
        self, ready: Callable[[], bool]
    ) -> Callable[[threading.Event], Generator[Loading, None, LocalChat]]:
        def opener(_stop: threading.Event) -> Generator[Loading, None, LocalChat]:
            yield Loading("weights", 0, 1)
            assert ready()
            if self.fails:
                raise MemoryError
            self.chats.append(FakeChat())
            return cast(LocalChat, self.chats[-1])

        return opener

    def load(self, name: str) -> tuple[list[Any], Failure | None]:
        outlet = Outlet()
        self.thread.load(name, outlet)
        return outlet.all()

    def names(self) -> list[tuple[str, bool]]:
        return [(model.id, model.loaded) for model in self.thread.models()]


@pytest.fixture
def models() -> Iterator[Models]:
    found = Models()
    yield found
    found.gate.set()
    found.thread.close()
    assert all(chat.closed for chat in found.chats)


def counting(count: int) -> Callable[[LocalChat, threading.Event], Generator[int, None, None]]:
    return lambda _chat, _stop: (number for number in range(count))


def refusal(models: Models) -> Failure | None:
    """What work is told that cannot run."""
    outlet = Outlet()
    models.thread.submit(counting(3), outlet)
    events, failure = outlet.all()
    assert events == []
    return failure


def test_without_a_model_work_is_refused(models: Models) -> None:
    assert models.names() == [("one", False), ("two", False)]
    failure = refusal(models)
    assert failure is not None
    assert (failure.status, failure.code) == (503, "model_not_loaded")
    assert models.thread.absence() == failure


def test_one_model_at_a_time_is_loaded(models: Models) -> None:
    assert models.load("one") == ([Loading("weights", 0, 1)], None)
    first = models.thread.models()[0]
    assert (first.id, first.loaded, first.context_length, first.adapters) == ("one", True, 64, (("a", 0.5),))
    assert (first.thinking, first.defaults) == ((("<t>", "</t>"),), (("top_k", 3.0),))
    assert first.created == models.thread.models()[1].created > 1.7e9
    assert models.load("one") == ([], None)  # it is there
    assert len(models.chats) == 1
    models.gate.set()
    models.load("two")
    assert models.names() == [("two", True), ("one", False)]
    assert [chat.closed for chat in models.chats] == [True, False]
    events, failure = models.load("three")
    assert (events, failure and (failure.status, failure.code, failure.param)) == (
        [], (404, "model_not_found", "model"),
    )  # fmt: skip
    assert models.names() == [("two", True), ("one", False)]


def test_a_model_that_cannot_be_loaded_leaves_none(models: Models) -> None:
    models.load("one")
    models.fails = True
    models.gate.set()
    assert models.load("two")[1] is not None
    assert models.names() == [("one", False), ("two", False)]
    assert models.thread.absence().code == "model_not_loaded"
    assert models.chats[0].closed


def test_what_is_asked_while_a_model_is_loading_waits_and_is_told_of_the_change(models: Models) -> None:
    models.load("one")
    early, loading, late = Outlet(), Outlet(), Outlet()
    models.thread.load("two", loading)
    assert loading.next() == Loading("weights", 0, 1)
    assert models.thread.absence() == LOADING
    models.thread.submit(counting(2), early)
    models.gate.set()
    assert loading.all() == ([], None)
    assert early.all() == ([], CHANGED)
    models.thread.submit(counting(2), late)
    assert late.all() == ([0, 1], None)


def test_unloading_releases_the_model_once_its_work_has_ended(models: Models) -> None:
    models.load("one")
    running, outlet, go_on = Outlet(), Outlet(), threading.Event()

    def work(_chat: LocalChat, _stop: threading.Event) -> Generator[bool, None, None]:
        yield False
        assert go_on.wait(WAIT_S)
        for _ in range(3):
            yield models.chats[0].closed

    models.thread.submit(work, running)
    assert running.next() is False
    models.thread.unload(outlet)
    go_on.set()
    assert running.all() == ([False] * 3, None)
    assert outlet.all() == ([], None)
    assert models.chats[0].closed
    assert models.names() == [("one", False), ("two", False)]


def test_work_goes_on_in_turns_and_loading_waits_for_it(models: Models) -> None:
    models.load("one")
    order: list[str] = []
    both = threading.Barrier(2)

    def work(name: str, count: int) -> Callable[[LocalChat, threading.Event], Generator[str, None, None]]:
        def generate(_chat: LocalChat, _stop: threading.Event) -> Generator[str, None, None]:
            for _ in range(count):
                order.append(name)
                yield name

        return generate

    def holding(_chat: LocalChat, _stop: threading.Event) -> Generator[str, None, None]:
        both.wait(WAIT_S)
        both.wait(WAIT_S)
        yield from ()

    outlets = [Outlet() for _ in range(5)]
    models.thread.submit(holding, outlets[0])
    both.wait(WAIT_S)  # all that follows is in the queue before any of it begins
    models.thread.submit(work("a", 3), outlets[1])
    models.thread.submit(work("b", 2), outlets[2])
    models.gate.set()
    models.thread.load("two", outlets[3])
    models.thread.submit(work("c", 1), outlets[4])
    both.wait(WAIT_S)
    assert outlets[1].all() == (["a", "a", "a"], None)
    assert outlets[2].all() == (["b", "b"], None)
    assert outlets[3].all() == ([Loading("weights", 0, 1)], None)
    assert outlets[4].all() == ([], CHANGED)  # it was asked of the model before
    assert order == ["a", "b", "a", "b", "a"]


def test_cancelled_work_ends_before_its_next_event(models: Models) -> None:
    models.load("one")
    outlet, go_on = Outlet(), threading.Event()

    def work(_chat: LocalChat, _stop: threading.Event) -> Generator[int, None, None]:
        yield 1
        assert go_on.wait(WAIT_S)
        yield 2

    ticket = models.thread.submit(work, outlet)
    assert outlet.next() == 1
    ticket.cancel()
    go_on.set()
    assert outlet.all() == ([], None)


def test_closing_ends_what_runs_and_what_waits(models: Models) -> None:
    models.load("one")
    running, waiting = Outlet(), Outlet()
    models.thread.submit(lambda _chat, _stop: (number for number in itertools.count()), running)
    assert running.next() == 0
    models.thread.load("two", waiting)
    models.thread.close()
    assert running.all()[1] == CLOSING
    assert waiting.all() == ([], None)
    assert models.chats[0].closed
    assert models.names() == [("one", False), ("two", False)]
