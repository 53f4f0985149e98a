"""What a client hears of work that the window's engine cannot do, without a server and a window."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from desktop.services.local_server.engine_thread import EngineThread
from engine.chat import LocalChat
from engine.errors import DeviceLost
from engine.server.failure import ApiError, Failure
from tests.desktop.fakes import ECHO_INFO


class Engine:
    """An engine whose thread runs what is lent to it when `run` is called."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.host = SimpleNamespace(
            source=mock.create_autospec(LocalChat, instance=True), info=ECHO_INFO, failed=self.failures.append
        )
        self.host.source.context_length = 64
        self.loads = self.closed = False
        self.stops: list[threading.Event] = []
        self.lent: list[Generator[Any, None, None]] = []

    def lend(self, make: Callable[[threading.Event], Generator[Any, None, None]]) -> threading.Event:
        if self.closed:
            raise RuntimeError("closed")
        stop = threading.Event()
        self.stops.append(stop)
        self.lent.append(make(stop))
        return stop

    def run(self) -> None:
        for events in self.lent:
            list(events)


class Heard:
    """What a client gets: events, and how they ended."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.ends: list[Failure | None] = []

    def put(self, event: Any) -> None:
        self.events.append(event)

    def end(self, failure: Failure | None) -> None:
        self.ends.append(failure)

    @property
    def code(self) -> str | None:
        (end,) = self.ends
        return end.code if end is not None else "none"


def words(_source: LocalChat, _stop: threading.Event) -> Generator[str, None, None]:
    yield from ("one", "two")


def raising(error: Exception) -> Callable[[LocalChat, threading.Event], Generator[str, None, None]]:
    def work(_source: LocalChat, _stop: threading.Event) -> Generator[str, None, None]:
        yield "one"
        raise error

    return work


@pytest.fixture
def engine() -> Engine:
    return Engine()


def submitted(engine: Engine, work: Any = words) -> Heard:
    heard = Heard()
    EngineThread(engine).submit(work, heard)  # type: ignore[arg-type]
    return heard


def test_work_runs_with_the_model_that_was_asked_for(engine: Engine) -> None:
    heard = submitted(engine)
    engine.run()
    assert (heard.events, heard.code, engine.failures) == (["one", "two"], "none", [])


@pytest.mark.parametrize(("model", "code"), [("another", "model_changed"), ("none", "model_not_loaded"),
                                             ("loading", "model_loading")])  # fmt: skip
def test_work_that_waited_while_the_model_was_changed_is_not_begun(
    engine: Engine, model: str, code: str
) -> None:
    heard = submitted(engine)
    engine.host.info = mock.Mock(host="") if model == "another" else None
    if model != "another":
        engine.host.source, engine.loads = None, model == "loading"
    engine.run()
    assert (heard.events, heard.code, engine.failures) == ([], code, [])


def test_only_a_loaded_model_of_this_computer_is_served(engine: Engine) -> None:
    thread = EngineThread(engine)  # type: ignore[arg-type]
    assert [(model.id, model.loaded) for model in thread.models()] == [(ECHO_INFO.name, True)]
    engine.loads = True
    assert (thread.models(), thread.absence().code) == ((), "model_loading")
    engine.loads, engine.host.source = False, None
    engine.host.info = dataclasses.replace(ECHO_INFO, host="lab.example.org")
    absence = thread.absence()
    assert (thread.models(), absence.code, absence.type) == ((), "model_not_local", "server_error")
    assert "lab.example.org" in absence.message
    engine.host.info = None
    assert (thread.models(), thread.absence().code) == ((), "model_not_loaded")


def test_only_the_user_chooses_the_model(engine: Engine) -> None:
    thread, heard = EngineThread(engine), [Heard(), Heard()]  # type: ignore[arg-type]
    thread.load("another", heard[0])
    thread.unload(heard[1])
    engine.run()
    assert [(each.events, each.code) for each in heard] == [([], "not_allowed")] * 2


def test_the_window_hears_of_a_lost_device_and_not_of_a_refusal(engine: Engine) -> None:
    lost, refused = DeviceLost("The GPU is gone."), ApiError(Failure(400, "No.", code="no"))
    heard = [submitted(engine, raising(error)) for error in (lost, refused)]
    engine.run()
    assert engine.failures == [lost]
    assert [each.events for each in heard] == [["one"], ["one"]]
    assert heard[1].code == "no"


def test_a_client_is_told_when_the_window_closes(engine: Engine) -> None:
    engine.closed = True
    assert submitted(engine).code == "shutting_down"
    engine.closed = False
    heard = submitted(engine)
    next(engine.lent[0])
    engine.lent[0].close()  # as the engine's thread does at its end
    assert (heard.events, heard.code, engine.failures) == (["one"], "shutting_down", [])


def test_a_client_that_goes_away_ends_its_work(engine: Engine) -> None:
    heard = Heard()
    ticket = EngineThread(engine).submit(words, heard)  # type: ignore[arg-type]
    next(engine.lent[0])
    ticket.cancel()
    engine.run()
    assert (heard.events, heard.code) == (["one"], "none")


def test_a_client_whose_reply_the_window_ends_is_told_so(engine: Engine) -> None:
    heard = submitted(engine)
    next(engine.lent[0])
    engine.stops[0].set()
    engine.run()
    assert (heard.events, heard.code) == (["one"], "model_changed")
