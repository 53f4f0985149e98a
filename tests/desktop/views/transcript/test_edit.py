"""Editing a message in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.widgets.icons import IconButton

Show = Callable[..., tuple[TranscriptView, MessagesModel]]
CONTROL = Qt.KeyboardModifier.ControlModifier


def editor(view: TranscriptView) -> EditorRow:
    [found] = [widget for widget in view.pool.widgets() if isinstance(widget, EditorRow)]
    return found


def editors(view: TranscriptView) -> int:
    return sum(isinstance(widget, EditorRow) for widget in view.pool.widgets())


@pytest.fixture
def pair(show: Show) -> tuple[TranscriptView, MessagesModel]:
    return show([MessageItem(1, "user", "First\nsecond"), MessageItem(2, "assistant", "Answer **bold**")])


def test_control_enter_saves_and_enter_breaks_the_line(
    pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot
) -> None:
    view, _ = pair
    view.begin_edit(1)
    box = editor(view).box
    assert box.toPlainText() == "First\nsecond"
    QTest.keyClick(box, Qt.Key.Key_Return)
    QTest.keyClicks(box, "third")
    with qtbot.waitSignal(view.edited) as saved:
        QTest.keyClick(box, Qt.Key.Key_Return, CONTROL)
    assert saved.args == [1, "First\nsecond\nthird", True]
    qtbot.waitUntil(view.settled)
    assert editors(view) == 0


def test_escape_and_cancel_leave_the_message(
    pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot
) -> None:
    view, _ = pair
    with qtbot.assertNotEmitted(view.edited):
        view.begin_edit(2)
        QTest.keyClicks(editor(view).box, "x")
        QTest.keyClick(editor(view).box, Qt.Key.Key_Escape)
        qtbot.waitUntil(view.settled)
        assert editors(view) == 0
        view.begin_edit(2)
        assert editor(view).box.toPlainText() == "Answer **bold**"
        QTest.mouseClick(editor(view).cancel, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(view.settled)
    assert editors(view) == 0


def test_the_buttons_save(pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot) -> None:
    view, _ = pair
    view.begin_edit(2)
    editor(view).box.setPlainText("New")
    with qtbot.waitSignal(view.edited) as saved:
        QTest.mouseClick(editor(view).save, Qt.MouseButton.LeftButton)
    assert saved.args == [2, "New", True]
    assert not editor_of(view, 2)


def editor_of(view: TranscriptView, message: int) -> bool:
    return any(row.kind == "editor" for row in view.messages.rows_of(message))


def test_a_user_message_can_be_saved_without_an_answer_and_keeps_its_files(
    pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot
) -> None:
    view, model = pair
    files = "Attached file: a.txt\n```\none\n```"
    model.replace(1, MessageItem(1, "user", f"{files}\n\nWhy?"))
    view.begin_edit(1)
    assert editor(view).box.toPlainText() == "Why?"
    editor(view).box.setPlainText("When?")
    with qtbot.waitSignal(view.edited) as saved:
        QTest.mouseClick(editor(view).keep, Qt.MouseButton.LeftButton)
    assert saved.args == [1, f"{files}\n\nWhen?", False]
    view.begin_edit(2)
    assert not editor(view).keep.isVisible()


def test_only_one_message_is_edited(pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot) -> None:
    view, _ = pair
    view.begin_edit(1)
    view.begin_edit(2)
    assert editors(view) == 1
    assert editor(view).box.toPlainText() == "Answer **bold**"
    with pytest.raises(KeyError):
        view.begin_edit(77)


def test_the_box_grows_with_its_text(pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot) -> None:
    view, _ = pair
    view.begin_edit(1)
    before = editor(view).height()
    editor(view).box.setPlainText("line\n" * 12)
    qtbot.waitUntil(lambda: editor(view).height() > before)


def test_typed_text_outlives_scrolling_and_a_growing_reply(show: Show, qtbot: QtBot) -> None:
    items = [MessageItem(i, "assistant", "Text.\n\n" * 30, running=i == 9) for i in range(10)]
    view, model = show(items, 600, 400)
    view.scrolling.to_message(0)
    view.flush()
    view.begin_edit(0)
    editor(view).box.setPlainText("typed")
    view.scroll_to_end()
    model.append_text(9, "More.")
    view.flush()
    assert editor(view).box.toPlainText() == "typed"


def test_the_edit_ends_when_its_message_goes(
    pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot
) -> None:
    view, model = pair
    view.begin_edit(2)
    model.remove([2])
    qtbot.waitUntil(view.settled)
    assert editors(view) == 0
    view.begin_edit(1)
    model.replace(1, MessageItem(5, "user", "other variant"))
    qtbot.waitUntil(view.settled)
    assert editors(view) == 0
    view.begin_edit(5)
    assert editor(view).box.toPlainText() == "other variant"


def test_the_keyboard_goes_into_the_box_and_back(
    pair: tuple[TranscriptView, MessagesModel], qtbot: QtBot
) -> None:
    view, _ = pair
    view.activateWindow()
    QTest.qWaitForWindowActive(view)
    view.begin_edit(1)
    qtbot.waitUntil(editor(view).box.hasFocus)
    QTest.keyClick(editor(view).box, Qt.Key.Key_Escape)
    qtbot.waitUntil(view.hasFocus)


def test_the_jump_button_does_not_cover_the_buttons_of_an_edit(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "user", "First"), MessageItem(2, "assistant", "word\n\n" * 200)])
    jump = view.viewport().findChild(IconButton, "jumpToLatest")
    view.verticalScrollBar().setValue(0)
    qtbot.waitUntil(jump.isVisible)
    view.begin_edit(1)
    qtbot.waitUntil(view.settled)
    view.resize(view.width(), editor(view).geometry().bottom() + 40)
    view.verticalScrollBar().setValue(0)
    qtbot.waitUntil(view.settled)
    assert editor(view).geometry().intersects(jump.geometry())
    assert not jump.isVisible()
    view.resize(view.width(), editor(view).geometry().bottom() + 400)
    qtbot.waitUntil(view.settled)
    assert jump.isVisible()
