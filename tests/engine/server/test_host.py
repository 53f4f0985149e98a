"""Work on the model's thread: what reaches the client, and what it is told at the end."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from engine.core import Waiting
from engine.server.failure import CLOSING, Failure
from engine.server.host import capabilities_of, pumped
from tests.engine.server.served import Served

LEFT = Failure(503, "The model left.")


class Work:
    """Three events, of which one only waits; `error` is raised after them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = self.ended = False
        self.error = error
        self.stop, self.outlet = threading.Event(), mock.Mock()

    def events(self) -> Generator[Any, None, None]:
        self.begun = True
        try:
            yield from ("one", Waiting(), "two")
            if self.error is not None:
                raise self.error
        finally:
            self.ended = True

    def pumped(self) -> Generator[Waiting, None, None]:
        return pumped(self.events, self.stop, self.outlet, lambda: LEFT)

    def told(self) -> tuple[list[str], list[Failure | None]]:
        """What was put, and how the outlet was ended."""
        put = [call.args[0] for call in self.outlet.put.call_args_list]
        return put, [call.args[0] for call in self.outlet.end.call_args_list]


def test_events_are_passed_on_and_others_get_their_turn_after_each() -> None:
    work = Work()
    assert list(work.pumped()) == [Waiting()] * 3
    assert work.told() == (["one", "two"], [None])


def test_stopped_before_it_begins_and_in_between() -> None:
    early = Work()
    early.stop.set()
    assert list(early.pumped()) == []
    assert (early.begun, early.told()) == (False, ([], [LEFT]))
    work = Work()
    steps = work.pumped()
    next(steps)
    work.stop.set()
    assert list(steps) == []
    assert (work.ended, work.told()) == (True, (["one"], [LEFT]))


def test_closed_and_failed_work_tells_why() -> None:
    closed = Work()
    steps = closed.pumped()
    next(steps)
    steps.close()
    assert (closed.ended, closed.told()) == (True, (["one"], [CLOSING]))
    failed = Work(ValueError("odd"))
    assert list(failed.pumped()) == [Waiting()] * 3
    put, (failure,) = failed.told()
    assert put == ["one", "two"]
    assert failure is not None
    assert failure.status == 500


@pytest.mark.loopback
def test_what_models_can_do(served: Served) -> None:
    info = replace(served.chat.info, thinking_levels=())
    assert capabilities_of(info) == ("completion", "tools")
    assert capabilities_of(replace(info, reads_pictures=True)) == ("completion", "tools", "vision")
    switched = replace(info, thinking_levels=(("low", "</think>"),))
    assert capabilities_of(switched) == ("completion", "tools", "thinking")
    assert capabilities_of(replace(info, embedding=True)) == ("embedding",)
