"""A call that comes once the user pauses."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import QObject

from desktop.services.system.debounce import debounce

pytestmark = pytest.mark.gui


def test_the_call_comes_once_and_a_pause_after_it_was_last_asked_for(qtbot) -> None:
    parent = QObject()
    calls: list[float] = []
    timer = debounce(parent, lambda: calls.append(time.monotonic()), 200)
    assert not timer.isActive()
    timer.start()
    qtbot.wait(50)
    timer.start()
    asked = time.monotonic()
    qtbot.waitUntil(lambda: bool(calls))
    assert calls[0] - asked > 0.15
    qtbot.wait(300)
    assert len(calls) == 1
    timer.start()
    qtbot.waitUntil(lambda: len(calls) == 2)
    parent.deleteLater()


def test_without_a_pause_it_comes_as_soon_as_the_window_is_free(qtbot) -> None:
    parent = QObject()
    calls: list[int] = []
    timer = debounce(parent, lambda: calls.append(1))
    timer.start()
    timer.start()
    assert not calls
    qtbot.waitUntil(lambda: calls == [1])
    parent.deleteLater()
