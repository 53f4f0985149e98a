"""The GUI thread has a core to itself until text is painted, and while the user acts."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from desktop.services.engine.cpu_yield import CpuYield
from desktop.services.engine.engine_controller import EngineController
from engine.platform import core_yield


class Watched(QWidget):
    """Records what is asked for while it is painted."""

    changed = Signal()

    def __init__(self, reported: list[str]) -> None:
        super().__init__()
        self.reported = reported
        self.changed.connect(self.later, Qt.ConnectionType.QueuedConnection)

    def later(self) -> None:
        self.reported.append("arranged")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        self.reported.append("painted")


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(core_yield, "ask", lambda: found.append("asked"))
    monkeypatch.setattr(core_yield, "give_back", lambda: found.append("given back"))
    return found


def test_a_core_stays_free_until_text_is_painted(qtbot: QtBot, reported: list[str]) -> None:
    widget, asker = Watched(reported), CpuYield()
    qtbot.addWidget(widget)
    widget.show()
    qtbot.waitExposed(widget)
    qtbot.waitUntil(lambda: "painted" in reported)
    reported.clear()
    asker.begin()
    assert reported == [], "nobody needs room while no model computes"
    asker.on = True
    asker.begin()
    asker.begin()
    widget.changed.emit()
    qtbot.waitUntil(lambda: "given back" in reported)
    assert reported == ["asked", "arranged", "painted", "given back"]
    asker.begin()
    asker.end()
    assert reported[4:] == ["asked", "given back"]


def test_a_core_stays_free_until_the_user_pauses(qtbot: QtBot, reported: list[str]) -> None:
    asker = CpuYield()
    asker.hold()
    assert reported == [], "nobody needs room while no model computes"
    asker.on = True
    asker._held.setInterval(60_000)  # on a slow machine the user acts in time, too
    for _ in range(4):
        asker.hold()
        asker.begin()
        qtbot.waitUntil(lambda: not asker._turns)
    assert reported == ["asked"], "one request for all actions that follow each other"
    asker._held.setInterval(1)  # starting a running timer restarts it
    qtbot.waitUntil(lambda: len(reported) > 1)
    assert reported == ["asked", "given back"]
    asker.hold()
    asker.end()
    assert reported == ["asked", "given back"] * 2
    assert not asker._held.isActive()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness for each thread")
def test_the_engines_thread_has_a_lower_priority_than_the_window(qtbot: QtBot) -> None:
    """As every thread that it starts: a model's helpers are started on it."""

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work(_stop: threading.Event) -> Generator[None, None, int]:
        yield
        return niceness()

    def refuse(*_: object) -> Any:
        raise AssertionError("no model is opened here")

    found = list[int]()
    controller = EngineController(refuse, refuse)
    try:
        controller.run_in_background(work, found.append)
        qtbot.waitUntil(lambda: bool(found))
    finally:
        controller.close()
    assert found == [max(niceness(), core_yield.NICENESS)]
    assert core_yield.NICENESS > 0
