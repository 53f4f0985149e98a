"""What is painted again: only what looks different; the screen is what painting everything would make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QApplication, QScrollBar, QWidget
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.base import DocumentRow, RowWidget
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.row_widgets.table import TableRow
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show
from tests.desktop.views.transcript.test_random_use import Use

WORDS = "Rivers carry water from the hills to the sea, slowly. " * 12
CHAT = [
    MessageItem(
        number, "assistant" if number % 2 else "user", f"{number} {WORDS}\n\n```\ncode\n```\n\n{WORDS}"
    )
    for number in range(40)
]
HEAD = "| number | words | value |\n|---:|---|---:|\n"
LINE = "| 12 | a few words here | 0.125 |\n"


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The heights of all painted parts of rows with text."""
    heights: list[int] = []
    paint = DocumentRow.paintEvent

    def counted(self: DocumentRow, event: QPaintEvent) -> None:
        heights.append(event.rect().height())
        paint(self, event)

    monkeypatch.setattr(DocumentRow, "paintEvent", counted)
    return heights


def on_screen(view: TranscriptView) -> QImage:
    """The pixels of the viewport as they are on the screen."""
    viewport = view.viewport()
    window, area = viewport.window(), viewport.rect()
    corner = viewport.mapTo(window, area.topLeft())
    grabbed = window.screen().grabWindow(window.winId(), corner.x(), corner.y(), area.width(), area.height())
    return _ours(view, grabbed)


def afresh(view: TranscriptView) -> QImage:
    """The pixels of the viewport, all painted anew."""
    return _ours(view, view.viewport().grab())


def _ours(view: TranscriptView, grabbed: QPixmap) -> QImage:
    """Without Qt's own widgets: the text cursor blinks, arrows depend on the position on the screen."""
    viewport, painter = view.viewport(), QPainter(grabbed)
    for kind in (QScrollBar, EditorRow):
        for widget in viewport.findChildren(kind):
            if widget.isVisible():
                corner = widget.mapTo(viewport, widget.rect().topLeft())
                painter.fillRect(QRect(corner, widget.size()), Qt.GlobalColor.black)
    painter.end()
    return grabbed.toImage().convertToFormat(QImage.Format.Format_RGB32)


def test_scrolling_paints_only_what_comes_onto_the_screen(
    show: Show, qtbot: QtBot, painted: list[int]
) -> None:
    view, _ = show(CHAT)
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    jump = view.findChild(QWidget, "jumpToLatest")
    assert jump is not None
    qtbot.waitUntil(lambda: view.settled() and jump.isVisible())
    for step in (-30, -30, -30, 25, 25):
        QApplication.processEvents()
        painted.clear()
        bar.setValue(bar.value() + step)
        QApplication.processEvents()
        # the strip, and the rows under the button, which stays where it is
        assert 0 < sum(painted) <= abs(step) + 2 * (jump.height() + abs(step))
        assert on_screen(view) == afresh(view)


def test_a_reply_that_pushes_the_others_up_does_not_paint_them(
    show: Show, qtbot: QtBot, painted: list[int]
) -> None:
    view, model = show(CHAT)
    model.append(MessageItem(900, "assistant", "", running=True))
    qtbot.waitUntil(view.settled)
    most = 0
    for _ in range(40):
        painted.clear()
        model.append_text(900, "and some more words ")
        view.flush()
        QApplication.processEvents()
        most = max(most, sum(painted))
    assert 0 < most < view.viewport().height() // 3
    assert on_screen(view) == afresh(view)


def test_a_growing_table_paints_its_new_lines(show: Show, qtbot: QtBot, painted: list[int]) -> None:
    view, model = show([MessageItem(1, "assistant", HEAD + LINE * 6, running=True)], height=900)
    found = []
    for _ in range(6):
        heights = 0
        for piece in (LINE[:9], LINE[9:20], LINE[20:]):
            painted.clear()
            model.append_text(1, piece)
            view.flush()
            QApplication.processEvents()
            heights += sum(painted)
            assert on_screen(view) == afresh(view)
        found.append(heights)
    [table] = [widget for widget in view.pool.widgets() if isinstance(widget, TableRow)]
    line = table.height() / 13
    assert max(found[1:]) < 5 * line  # the first line finds the width of all cells
    model.append_text(1, LINE.replace("a few", "many more and much longer"))
    view.flush()
    QApplication.processEvents()
    assert on_screen(view) == afresh(view)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("seed", range(6))
def test_after_any_use_the_screen_is_up_to_date(show: Show, qtbot: QtBot, seed: int) -> None:
    view, model = show([])
    use = Use(view, model, seed)
    model.reset([use.message() for _ in range(8)])
    bar = view.verticalScrollBar()
    for _ in range(25):
        use.random.choice((use.change, use.act))()
        view.flush()
        bar.setValue(bar.value() + use.random.randint(-200, 200))
        qtbot.waitUntil(view.settled)
        QApplication.processEvents()
        assert on_screen(view) == afresh(view)


def test_rows_for_the_first_scrolling_are_made_before(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = show(CHAT)
    qtbot.waitUntil(lambda: bool(view.pool._spare) and view.settled())
    made: list[RowKind] = []
    make: Callable[[RowKind], RowWidget] = view.pool._make

    def counted(kind: RowKind) -> RowWidget:
        made.append(kind)
        return make(kind)

    view.pool._make = counted
    bar = view.verticalScrollBar()
    for before, after in pairwise(range(bar.maximum(), bar.maximum() - 900, -60)):
        bar.setValue(bar.value() + after - before)
        QApplication.processEvents()
    assert made == []


def test_colours_wait_while_the_reader_scrolls(show: Show, qtbot: QtBot) -> None:
    view, _ = show(CHAT)
    runner, steps = view._code_colours.runner, []

    def job() -> Iterator[None]:
        steps.append(1)
        yield

    runner.run("job", job())
    bar = view.verticalScrollBar()
    for _ in range(5):
        bar.setValue(bar.value() - 10)
        QApplication.processEvents()
        assert runner._timer.isActive()
        assert runner._timer.remainingTime() > 0
    qtbot.waitUntil(lambda: bool(steps))
    qtbot.waitUntil(runner.idle)
