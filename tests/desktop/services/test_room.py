"""The window's thread has a core for itself from the arrival of a text until it is painted, and no longer."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from desktop.items.messages import MessageItem
from desktop.services.room import RoomAsker
from desktop.views.transcript import TranscriptView
from engine import room
from tests.desktop.views.transcript.conftest import Show, show

__all__ = ["show"]


class Watched(QWidget):
    """Tells what is asked for while it is painted."""

    changed = Signal()

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told = told
        self.changed.connect(self.later, Qt.ConnectionType.QueuedConnection)

    def later(self) -> None:
        self.told.append("arranged")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        self.told.append("painted")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(room, "ask", lambda: found.append("asked"))
    monkeypatch.setattr(room, "give_back", lambda: found.append("given back"))
    return found


def test_room_is_kept_until_what_arrived_is_painted(qtbot: QtBot, told: list[str]) -> None:
    widget, asker = Watched(told), RoomAsker()
    qtbot.addWidget(widget)
    widget.show()
    qtbot.waitExposed(widget)
    qtbot.waitUntil(lambda: "painted" in told)
    told.clear()
    asker.begin()
    assert told == [], "nobody needs room while no model computes"
    asker.on = True
    asker.begin()
    asker.begin()
    widget.changed.emit()
    qtbot.waitUntil(lambda: "given back" in told)
    assert told == ["asked", "arranged", "painted", "given back"]
    asker.begin()
    asker.end()
    assert told[4:] == ["asked", "given back"]


def test_a_text_is_painted_in_the_pass_of_what_changes_with_it(
    qtbot: QtBot, told: list[str], show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transcript is arranged before anything is painted: otherwise each frame with new figures would be two."""
    view, model = show([MessageItem(1, "user", "Go"), MessageItem(2, "assistant", "One", running=True)])
    watched, asker = Watched(told), RoomAsker()
    watched.setParent(view.viewport())
    watched.setGeometry(0, 0, 8, 8)
    watched.show()
    qtbot.waitUntil(lambda: view.settled() and "painted" in told)
    qtbot.wait(40)
    told.clear()

    def arrange() -> None:
        told.append("arranged")
        TranscriptView.arrange(view)

    monkeypatch.setattr(view, "arrange", arrange)
    asker.on = True
    asker.begin()
    watched.update()
    model.append_text(2, " and two")
    qtbot.waitUntil(lambda: "given back" in told)
    assert told == ["asked", "arranged", "painted", "given back"]
