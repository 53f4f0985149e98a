"""Random use of model and view: the rows are the messages' rows, where the layout puts them, and nothing
raises.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.small import ThoughtRow

Show = Callable[..., tuple[TranscriptView, MessagesModel]]
LEFT = Qt.MouseButton.LeftButton
BITS = (
    "<think>\n", "</think>\n", "```py\n",
    "```\n", "| a | b |\n|---|---|\n", "| 1 | 2 |\n", "text and more text\n", "\n", "- item\n", "# H\n",
    "> q\n", "---\n", "x" * 400 + " ", "   ```\n", "1. one\n", "![a](b)", "`c` **b** ",
)  # fmt: skip


class Use:
    """One reader with a seed."""

    def __init__(self, view: TranscriptView, model: MessagesModel, seed: int) -> None:
        self.view, self.model, self.random = view, model, random.Random(seed)
        self.last_id = 0

    def message(self) -> MessageItem:
        choose = self.random.choice
        self.last_id += 1
        return MessageItem(
            self.last_id, choose(("user", "assistant", "assistant")), self.text(30),
            running=choose((True, False, False)), variant_count=choose((1, 2)), footer=choose(("", "footer")),
            notice=choose(("", "", "notice")),
        )  # fmt: skip

    def text(self, most: int) -> str:
        return "".join(self.random.choice(BITS) for _ in range(self.random.randint(0, most)))

    def some_id(self) -> int:
        return self.random.choice(self.model.items()).id

    def point(self) -> QPoint:
        area = self.view.viewport()
        return QPoint(self.random.randint(0, area.width()), self.random.randint(-50, area.height() + 50))

    def change(self) -> None:
        kind = self.random.randint(0, 6)
        if kind <= 2:
            self.model.append_text(self.some_id(), self.text(5))
        elif kind == 3 and self.model.rowCount() > 2:
            self.model.remove({self.some_id(), self.some_id()})
        elif kind == 4:
            self.model.append(self.message())
        elif kind == 5:
            self.model.replace(self.some_id(), self.message())
        else:
            item = self.model.item(self.some_id())
            self.model.replace(item.id, replace(item, running=not item.running))

    def act(self) -> None:
        view, bar = self.view, self.view.verticalScrollBar()
        thoughts = [widget for widget in view.pool.widgets() if isinstance(widget, ThoughtRow)]
        kind = self.random.randint(0, 8)
        if kind <= 1:
            bar.setValue(self.random.randint(0, bar.maximum()))
        elif kind == 2:
            view.resize(self.random.randint(200, 1000), self.random.randint(100, 900))
        elif kind == 3:
            view.begin_edit(self.some_id())
        elif kind == 4:
            end = self.point()
            QTest.mousePress(view.viewport(), LEFT, pos=self.point())
            QTest.mouseMove(view.viewport(), end)
            QTest.mouseRelease(view.viewport(), LEFT, pos=end)
        elif kind == 5:
            view.copy()
        elif kind == 6:
            view.select_all()
        elif kind == 7 and thoughts:
            self.random.choice(thoughts).button.click()
        else:
            view.set_text_scale(self.random.choice((80, 100, 150)))


def check(view: TranscriptView, model: MessagesModel) -> None:
    layout = view.messages.layout
    assert [message.item for message in view.messages.all] == list(model.items())
    assert [row for message in view.messages.all for row in message.rows] == layout.rows
    top = 0
    for index, row in enumerate(layout.rows):
        assert (row.index, layout.top(row)) == (index, top)
        top += row.height
    for row, widget in view.pool.live.items():
        assert widget.isVisible()
        assert widget.y() == layout.top(row) - view.verticalScrollBar().value()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("seed", range(8))
def test_random_use(show: Show, qtbot: QtBot, seed: int) -> None:
    view, model = show([])
    use = Use(view, model, seed)
    model.reset([use.message() for _ in range(8)])
    for _ in range(100):
        use.random.choice((use.change, use.act))()
        if use.random.random() < 0.6:
            QApplication.processEvents()
    view.flush()
    check(view, model)
    qtbot.waitUntil(view.settled)
