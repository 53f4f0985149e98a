"""Selecting with mouse and keys: exact text within a row, Markdown source across rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.rows import RowKind

Show = Callable[..., tuple[TranscriptView, MessagesModel]]
LEFT = Qt.MouseButton.LeftButton
ANSWER = "First **paragraph** here.\n\n```python\nx = '🎉'\ny = 2\n```\n\n- a\n- b\n\n\nLast one."


@pytest.fixture
def view(show: Show) -> TranscriptView:
    return show([MessageItem(1, "user", "A *question*"), MessageItem(2, "assistant", ANSWER)], 600, 700)[0]


def row(view: TranscriptView, start: str) -> DocumentRow:
    [found] = [widget for row, widget in view.pool.live.items() if row.text.startswith(start)]
    assert isinstance(found, DocumentRow)
    return found


def drag(view: TranscriptView, start: QPoint, end: QPoint) -> None:
    QTest.mousePress(view.viewport(), LEFT, pos=start)
    QTest.mouseMove(view.viewport(), (start + end) / 2)
    QTest.mouseMove(view.viewport(), end)
    QTest.mouseRelease(view.viewport(), LEFT, pos=end)


def copied(view: TranscriptView, qtbot: QtBot) -> str:
    QApplication.clipboard().setText("")
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    return QApplication.clipboard().text()


def test_inside_one_row_the_text_is_copied_as_shown(view: TranscriptView, qtbot: QtBot) -> None:
    text = row(view, "First")
    drag(
        view,
        text.pos() + QPoint(0, text.height() - 8),
        text.pos() + QPoint(text.width() - 2, text.height() - 8),
    )
    assert copied(view, qtbot) == "First paragraph here."
    code = row(view, "x = ")
    top = code.pos() + code.origin().toPoint()
    drag(view, top + QPoint(0, 4), top + QPoint(500, round(code.document.size().height()) - 4))
    assert copied(view, qtbot) == "x = '🎉'\ny = 2"


def test_over_rows_whole_blocks_of_source_are_copied(view: TranscriptView, qtbot: QtBot) -> None:
    first, code = row(view, "First"), row(view, "x = ")
    drag(view, first.pos() + QPoint(60, first.height() - 8), code.pos() + QPoint(40, code.height() - 14))
    assert copied(view, qtbot) == "First **paragraph** here.\n\n```python\nx = '🎉'\ny = 2\n```"
    drag(view, code.pos() + QPoint(40, code.height() - 14), first.pos() + QPoint(60, first.height() - 8))
    assert copied(view, qtbot) == "First **paragraph** here.\n\n```python\nx = '🎉'\ny = 2\n```"


def test_everything_is_the_source_of_all_messages(view: TranscriptView, qtbot: QtBot) -> None:
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert copied(view, qtbot) == "A *question*\n\n" + ANSWER


def test_two_clicks_select_a_word_and_three_the_block(view: TranscriptView, qtbot: QtBot) -> None:
    text = row(view, "First")
    place = text.pos() + QPoint(10, text.height() - 8)
    QTest.mouseClick(view.viewport(), LEFT, pos=place)
    QTest.mouseDClick(view.viewport(), LEFT, pos=place)
    assert copied(view, qtbot) == "First"
    QTest.mouseClick(view.viewport(), LEFT, pos=place)
    assert copied(view, qtbot) == "First paragraph here."


def test_shift_click_extends(view: TranscriptView, qtbot: QtBot) -> None:
    first, last = row(view, "First"), row(view, "Last")
    QTest.mouseClick(view.viewport(), LEFT, pos=first.pos() + QPoint(30, first.height() - 8))
    QTest.mouseClick(
        view.viewport(), LEFT, Qt.KeyboardModifier.ShiftModifier, last.pos() + QPoint(30, last.height() - 8)
    )
    assert copied(view, qtbot) == ANSWER


def test_a_click_selects_nothing_and_leaves_the_clipboard(view: TranscriptView, qtbot: QtBot) -> None:
    text = row(view, "First")
    QTest.mouseClick(view.viewport(), LEFT, pos=text.pos() + QPoint(30, text.height() - 8))
    assert copied(view, qtbot) == ""


def test_a_selection_outlives_scrolling_and_growth_but_not_its_message(show: Show, qtbot: QtBot) -> None:
    items = [
        MessageItem(i, "assistant", f"Message {i} with words.\n\n" + "More text.\n\n" * 20) for i in range(12)
    ]
    view, model = show(items, 600, 500)
    view.verticalScrollBar().setValue(0)
    text = row(view, "Message 0")
    drag(view, text.pos() + QPoint(0, text.height() - 8), text.pos() + QPoint(590, text.height() - 8))
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    model.append_text(11, "And more.")
    view.flush()
    assert copied(view, qtbot) == "Message 0 with words."
    model.remove([0])
    view.flush()
    assert copied(view, qtbot) == ""


def test_dragging_beyond_the_edge_scrolls_and_keeps_selecting(show: Show, qtbot: QtBot) -> None:
    items = [MessageItem(i, "assistant", f"Message {i}.\n\n" + "More text.\n\n" * 20) for i in range(6)]
    view, _ = show(items, 600, 400)
    view.verticalScrollBar().setValue(0)
    QTest.mousePress(view.viewport(), LEFT, pos=QPoint(300, 100))
    QTest.mouseMove(view.viewport(), QPoint(300, 300))
    QTest.mouseMove(view.viewport(), QPoint(300, 460))
    qtbot.waitUntil(lambda: view.verticalScrollBar().value() > 300)
    QTest.mouseRelease(view.viewport(), LEFT, pos=QPoint(300, 460))
    after = view.verticalScrollBar().value()
    QTest.qWait(80)
    assert view.verticalScrollBar().value() == after
    assert copied(view, qtbot).count("More text.") > 10


def test_the_context_menu_copies(view: TranscriptView, qtbot: QtBot) -> None:
    text = row(view, "First")
    place = text.pos() + QPoint(30, text.height() - 8)
    menu = view.make_menu(place)
    actions = {action.text(): action for action in menu.actions()}
    assert not actions["Copy"].isEnabled()
    actions["Copy message"].trigger()
    assert QApplication.clipboard().text() == ANSWER
    actions["Select all"].trigger()
    assert copied(view, qtbot) == "A *question*\n\n" + ANSWER
    menu.deleteLater()


def test_all_that_is_selected_is_painted_so(view: TranscriptView) -> None:
    widgets = [row(view, start) for start in ("A *question*", "First", "Last")]
    before = [widget.grab().toImage() for widget in widgets]
    view.selection.select_all()
    assert all(widget.grab().toImage() != image for widget, image in zip(widgets, before, strict=True))


def test_a_selection_whose_message_is_gone_begins_anew(show: Show) -> None:
    view, model = show([MessageItem(1, "user", "one"), MessageItem(2, "assistant", "two three")], 600, 400)
    first, second = (
        next(row for row in view.messages.rows_of(message) if row.kind in (RowKind.TEXT, RowKind.BUBBLE))
        for message in (1, 2)
    )
    view.selection.start(first, 0)
    view.selection.extend(second, 3)
    assert view.selection.text() == "one\n\ntwo three"  # rows between two ends are selected whole
    model.remove([1])
    view.flush()
    assert view.selection.text() == ""
    view.selection.start(first, 0)
    view.selection.extend(second, 4)
    view.selection.extend(second, 7)
    view.selection.show()
    assert view.selection.text() == "thr"
