"""Long work in short steps on the GUI thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication

from desktop.services.system.idle_steps import Steps
from desktop.store.database.database import StoreError

pytestmark = pytest.mark.gui


def counting(done: list[int], count: int, step_s: float = 0.0) -> Iterator[None]:
    for number in range(count):
        time.sleep(step_s)
        done.append(number)
        yield


def test_the_window_comes_between_two_slices(qtbot) -> None:
    steps, done, looks = Steps(), list[int](), [0]
    ends: list[int] = []
    steps.ended.connect(lambda: ends.append(len(done)))
    steps.run(counting(done, 10, 0.003))
    until = time.monotonic() + 30
    while not ends and time.monotonic() < until:
        QCoreApplication.processEvents()
        looks.append(len(done))
    assert ends == [10]
    assert not steps.running
    assert max(after - before for before, after in itertools.pairwise(looks)) <= 2


def test_nothing_is_done_while_something_else_has_priority(qtbot) -> None:
    busy = True
    steps, done = Steps(busy=lambda: busy), list[int]()
    steps.run(counting(done, 3))
    qtbot.wait(50)
    assert done == []
    assert steps.running
    busy = False
    qtbot.waitUntil(lambda: not steps.running)
    assert done == [0, 1, 2]


def test_a_new_job_replaces_the_present_one(qtbot) -> None:
    steps, first, second = Steps(), list[int](), list[int]()

    def replaced() -> Iterator[None]:
        first.append(0)
        steps.run(counting(second, 2))
        yield
        first.append(1)

    ends: list[bool] = []
    steps.ended.connect(lambda: ends.append(True))
    steps.run(replaced())
    qtbot.waitUntil(lambda: not steps.running)
    assert (first, second, ends) == ([0], [0, 1], [True])


def test_the_rest_of_a_job_can_be_taken_over(qtbot) -> None:
    steps, done = Steps(), list[int]()
    assert steps.take() is None
    steps.run(counting(done, 3))
    rest = steps.take()
    assert rest is not None
    assert not steps.running
    qtbot.wait(30)
    assert done == []
    assert len(list(rest)) == 3


def test_an_error_of_the_store_ends_the_job_and_is_told(qtbot) -> None:
    steps = Steps()

    def failing() -> Iterator[None]:
        yield
        raise StoreError("no room")

    with qtbot.waitSignal(steps.failed) as told:
        steps.run(failing())
    assert told.args == ["no room"]
    assert not steps.running
