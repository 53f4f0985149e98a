"""Finding words in the open chat with the keyboard: counted, marked and visited in order, while the chat
grows too.
"""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.store.attachments.message_format import Attachment, join
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.find_bar import FindBar
from desktop.views.transcript.row_widgets.attachment import AttachmentRow
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.searched_text import excerpt
from tests.desktop.views.transcript.conftest import Show

CHAT = [
    MessageItem(1, "user", "Where is the Needle?"),
    MessageItem(
        2,
        "assistant",
        "# A **nee**dle\n\nThe `needle` is [a needle](https://example.org/needle).\n\n" + "hay\n\n" * 80,
    ),
    MessageItem(
        3,
        "assistant",
        "<think>\nneedle hidden\n</think>\n\n```python\nneedle = 'NEEDLE'\n```\n\n| needle |\n|---|\n| hay "
        "|\n",
    ),
]
"""Eight matches: the question, the heading, two in the sentence, one in the folded thought, two in the code,
one in the table.
"""


def open_bar(view: TranscriptView, words: str) -> FindBar:
    QTest.keyClick(view, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    bar = view.finding.bar
    assert isinstance(bar, FindBar)
    assert bar.box.hasFocus() or not view.isActiveWindow()
    QTest.keyClicks(bar.box, words)
    return bar


def marked(view: TranscriptView) -> int:
    return sum(len(widget._marks) for widget in view.pool.widgets() if isinstance(widget, DocumentRow))


def test_every_match_is_counted_and_visited_in_order_and_around_the_ends(show: Show, qtbot: QtBot) -> None:
    view, _ = show(CHAT, 600, 400)
    view.verticalScrollBar().setValue(0)
    bar = open_bar(view, "needle")
    assert bar.count.text() == "1 of 8"
    seen = []
    for _ in range(9):
        row, number = view.finding._present or (None, 0)
        assert row is not None
        widget = view.pool.widget(row)
        assert isinstance(widget, DocumentRow)
        top = widget.y() + widget.mark_top()
        assert 0 <= top < view.viewport().height(), "the place is on the screen"
        assert not bar.geometry().intersects(view.viewport().geometry()), "the bar hides nothing"
        chosen = widget._marks[min(number, len(widget._marks) - 1)]
        assert chosen.selectedText().casefold() == "needle"
        seen.append((row.item.id, row.index, number))
        QTest.keyClick(bar.box, Qt.Key.Key_Return)
        qtbot.waitUntil(view.settled)
    assert seen[:8] == sorted(seen[:8])
    assert seen[8] == seen[0]
    QTest.keyClick(bar.box, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert bar.count.text() == "1 of 8"
    QTest.keyClick(bar.box, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert bar.count.text() == "8 of 8"


def test_the_buttons_do_what_the_keys_do_and_escape_removes_all_marks(show: Show, qtbot: QtBot) -> None:
    view, _ = show(CHAT, 600, 400)
    bar = open_bar(view, "needle")
    before = bar.count.text()
    QTest.mouseClick(bar.next, Qt.MouseButton.LeftButton)
    assert bar.count.text() != before
    QTest.mouseClick(bar.previous, Qt.MouseButton.LeftButton)
    assert bar.count.text() == before
    assert marked(view) > 0
    QTest.keyClick(bar.box, Qt.Key.Key_Escape)
    assert view.finding.bar is None
    assert marked(view) == 0
    qtbot.waitUntil(view.settled)
    assert view.finding.bar is None


def test_nothing_found_says_so_and_moves_nothing(show: Show, qtbot: QtBot) -> None:
    view, _ = show(CHAT, 600, 400)
    view.verticalScrollBar().setValue(100)
    qtbot.waitUntil(view.settled)
    value = view.verticalScrollBar().value()
    bar = open_bar(view, "zebra")
    assert bar.count.text() == "No matches"
    assert not bar.next.isEnabled()
    QTest.keyClick(bar.box, Qt.Key.Key_Return)
    assert view.verticalScrollBar().value() == value


def test_marks_are_painted_and_the_current_one_is_stronger(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "needle one and needle two")], 600, 300)
    open_bar(view, "needle")
    qtbot.waitUntil(view.settled)
    shot = view.grab().toImage()
    colours = {shot.pixelColor(x, y).name() for x in range(shot.width()) for y in range(120)}
    assert view._style.colours.found.name() in colours
    assert QColor(view._style.colours.notice).name() in colours


def test_a_growing_reply_is_counted_without_moving_the_reader(show: Show, qtbot: QtBot) -> None:
    view, model = show([*CHAT[:2], MessageItem(9, "assistant", "", running=True)], 600, 400)
    view.verticalScrollBar().setValue(0)
    bar = open_bar(view, "needle")
    assert bar.count.text() == "1 of 4"
    value = view.verticalScrollBar().value()
    for _ in range(3):
        model.append_text(9, "A needle more.\n\n")
    qtbot.waitUntil(lambda: bar.count.text() == "1 of 7")
    assert view.verticalScrollBar().value() == value


def test_another_chat_closes_the_bar(show: Show, qtbot: QtBot) -> None:
    view, model = show(CHAT, 600, 400)
    open_bar(view, "needle")
    model.reset([MessageItem(20, "user", "needle")])
    qtbot.waitUntil(view.settled)
    assert view.finding.bar is None
    assert marked(view) == 0


def test_selected_words_are_searched_for(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "needle and hay and hay")], 600, 300)
    row = next(row for row in view.pool.live if row.text.startswith("needle"))
    view.selection.start(row, 11)
    view.selection.extend(row, 14)
    view.selection.show()
    view.finding.open()
    bar = view.finding.bar
    assert bar is not None
    assert (bar.query(), bar.count.text()) == ("hay", "1 of 2")


def test_every_control_of_the_bar_has_a_name(show: Show, qtbot: QtBot) -> None:
    view, _ = show(CHAT)
    bar = open_bar(view, "")
    assert all(
        control.accessibleName() for control in (bar, bar.box, bar.count, bar.previous, bar.next, bar.shut)
    )


def test_a_match_in_a_file_is_shown_below_its_chip_while_the_search_is_open(show: Show, qtbot: QtBot) -> None:
    text = "first\n" + "x" * 200 + " the Needle of " + "y" * 200 + "\nneedle again"
    asked = join([Attachment("notes.txt", text)], "What is it?")
    view, _ = show([MessageItem(1, "user", asked), MessageItem(2, "assistant", "hay")], 600, 400)
    bar = open_bar(view, "needle")
    assert bar.count.text() == "1 of 2"
    (row,) = [row for row in view.messages.rows_of(1) if row.kind is RowKind.ATTACHMENT]
    qtbot.waitUntil(view.settled)
    assert "the Needle of" in row.peek
    assert row.peek[0] == row.peek[-1] == "…"
    widget = view.pool.widget(row)
    assert isinstance(widget, AttachmentRow)
    assert widget.peek.isVisible()
    assert widget.height() >= widget.peek.geometry().bottom()
    QTest.keyClick(bar.box, Qt.Key.Key_Return)
    qtbot.waitUntil(view.settled)
    assert row.peek == "needle again"
    QTest.keyClick(bar.box, Qt.Key.Key_Escape)
    qtbot.waitUntil(view.settled)
    assert row.peek == ""
    assert not widget.peek.isVisible()


@pytest.mark.parametrize(
    ("text", "query", "number", "line"),
    [
        ("first\nthe Needle here\nlast", "needle", 0, "the Needle here"),
        ("needle", "NEEDLE", 0, "needle"),
        ("a needle, a needle\nNeedle", "needle", 2, "Needle"),
        ("-----\nx -- y", "--", 2, "x -- y"),  # two in the first line, as they are counted
        ("Straße " * 40 + "\nHier: Nadel\nEnde", "nadel", 0, "Hier: Nadel"),  # each "ß" folds to "ss"
        ("ß" * 30 + "Nadel", "nadel", 0, "ß" * 30 + "Nadel"),
        ("die Straße\nja", "STRASSE", 0, "die Straße"),
        ("x" * 100 + "Nadel" + "y" * 100, "nadel", 0, "…" + "x" * 60 + "Nadel" + "y" * 60 + "…"),
        ("ß" * 100 + "Nadel" + "ß" * 100, "nadel", 0, "…" + "ß" * 60 + "Nadel" + "ß" * 60 + "…"),
        ("x" * 60 + "Nadel" + "y" * 60, "nadel", 0, "x" * 60 + "Nadel" + "y" * 60),
        ("first\nlast", "needle", 0, "first"),
    ],
)
def test_the_line_of_a_match_in_a_file(text: str, query: str, number: int, line: str) -> None:
    assert excerpt(text, query, number) == line


@pytest.mark.parametrize("from_right", [False, True])
def test_a_file_and_what_was_found_in_it_are_on_the_side_of_the_user_s_bubbles(
    show: Show, qtbot: QtBot, from_right: bool
) -> None:
    asked = join([Attachment("notes.txt", "the needle")], "What is it?")
    view, _ = show([MessageItem(1, "user", asked)], 600, 400)
    open_bar(view, "needle")
    qtbot.waitUntil(view.settled)
    (row,) = [row for row in view.messages.rows_of(1) if row.kind is RowKind.ATTACHMENT]
    widget = view.pool.widget(row)
    assert isinstance(widget, AttachmentRow)
    sides = Qt.LayoutDirection.RightToLeft if from_right else Qt.LayoutDirection.LeftToRight
    widget.setLayoutDirection(sides)
    widget.fit(500)
    for part in (widget.button, widget.peek):
        place = part.geometry()
        assert (place.left() if from_right else place.right() + 1) == (0 if from_right else 500)
        assert place.width() < 500


def test_a_hyphened_word_of_a_table_is_found_and_copied_as_it_was_written(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "| a |\n|---|\n| Apache-2.0 |\n")], 600, 400)
    bar = open_bar(view, "apache-2.0")
    assert bar.count.text() == "1 of 1"
    (row,) = [row for row in view.messages.rows_of(1) if row.kind is RowKind.TABLE]
    widget = view.pool.widget(row)
    assert isinstance(widget, DocumentRow)
    assert [cursor.selectedText() for cursor in widget._marks] == ["Apache\u20112.0"]
    widget.select(0, widget.document.characterCount() - 1)
    assert "Apache-2.0" in widget.selected_text()
