"""The queued messages above the composer."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from desktop.store.attachments.message_format import Attachment, join
from desktop.store.conversations.queue import Queued
from desktop.views.composer.queue_list import QueueList


@pytest.fixture
def rows(qtbot: QtBot) -> QueueList:
    made = QueueList()
    qtbot.addWidget(made)
    return made


def queued(number: int, text: str) -> Queued:
    return Queued(number, 1, text, "")


def test_nothing_is_shown_where_nothing_waits(rows: QueueList) -> None:
    assert rows.isHidden()
    rows.show_waiting([queued(1, "a")], held=False)
    assert not rows.isHidden()
    rows.show_waiting([], held=False)
    assert rows.isHidden()
    assert rows.rows == []


def test_when_they_are_sent(rows: QueueList) -> None:
    rows.show_waiting([queued(1, "a")], held=False)
    assert rows.title.text() == "Sent when the reply is complete"
    rows.show_waiting([queued(1, "a")], held=False, until="Sent when the model is loaded")
    assert rows.title.text() == "Sent when the model is loaded"
    rows.show_waiting([queued(1, "a"), queued(2, "b")], held=True, until="Sent when the model is loaded")
    assert rows.title.text() == "2 queued messages"


def test_only_the_first_of_those_that_wait_for_the_user_can_be_sent(rows: QueueList) -> None:
    waiting = [queued(1, "a"), queued(2, "b")]
    rows.show_waiting(waiting, held=False)
    assert [row.send.isHidden() for row in rows.rows] == [True, True]
    rows.show_waiting(waiting, held=True)
    assert [row.send.isHidden() for row in rows.rows] == [False, True]


def test_a_row_has_the_text_on_one_line_and_the_names_of_its_files(rows: QueueList) -> None:
    file = Attachment("a.txt", "content")
    texts = ["one\n\n two ", join([file], "see"), join([file, Attachment("b.py", "x = 1")], "")]
    rows.show_waiting([queued(number, text) for number, text in enumerate(texts)], held=True)
    words = [row.text.accessibleName() for row in rows.rows]
    assert words == [f"Queued message: {text}" for text in ("one two", "see (a.txt)", "a.txt, b.py")]


def test_the_buttons_tell_which_message(rows: QueueList, qtbot: QtBot) -> None:
    told: list[tuple[str, int]] = []
    for name in ("edited", "removed", "sent"):
        getattr(rows, name).connect(lambda number, name=name: told.append((name, number)))
    rows.show_waiting([queued(7, "a"), queued(9, "b")], held=True)
    rows.show()
    first, second = rows.rows
    for button in (first.send, second.edit, second.remove):
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert told == [("sent", 7), ("edited", 9), ("removed", 9)]


def test_the_keyboard_stays_with_its_message_and_leaves_with_it(rows: QueueList, qtbot: QtBot) -> None:
    waiting = [queued(1, "a"), queued(2, "b"), queued(3, "c")]
    rows.show_waiting(waiting, held=False)
    rows.show()
    qtbot.waitExposed(rows)
    rows.activateWindow()
    left: list[None] = []
    rows.left.connect(lambda: left.append(None))
    rows.rows[1].edit.setFocus()
    qtbot.waitUntil(rows.rows[1].edit.hasFocus)
    rows.show_waiting(waiting[1:], held=False)  # the first was sent
    assert rows.rows[0].edit.hasFocus()
    assert not left
    rows.show_waiting(waiting[2:], held=False)
    assert left
    rows.rows[0].send.setFocus()  # hidden: it does not take it
    rows.show_waiting([], held=False)
    assert len(left) == 1
