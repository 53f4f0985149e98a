"""The shared parts that let pages fit into 400 pixels at 200 % text."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QLabel, QListWidget, QMessageBox, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.dialogs.message_box import MessageBox
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog
from desktop.views.widgets.facts_grid import FactsGrid
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.turning_splitter import TurningSplitter
from desktop.views.widgets.wrapping_text import WrappingButton, WrappingCheckBox
from tests.desktop.clipped import clipped, lost

pytestmark = pytest.mark.gui
_LONG = "Words that go on for a while so that they need more than a line in any window of this width. " * 2


def placed(layout: FlowLayout) -> list[tuple[int, int, int]]:
    return [
        (item.geometry().x(), item.geometry().y(), item.geometry().width())
        for place in range(layout.count())
        if (item := layout.itemAt(place)) is not None and item.widget() is not None
    ]


@pytest.fixture
def parts(qtbot: QtBot) -> tuple[QWidget, FlowLayout]:
    window = QWidget()
    qtbot.addWidget(window)
    first, second, third = QPushButton(window), QPushButton(window), QPushButton(window)
    for button in (first, second, third):
        button.setFixedSize(100, 30)
    layout = fill(FlowLayout(window), first, 1, second, third, spacing=10)
    return window, layout


def test_a_row_with_room_is_one_line_that_ends_where_the_window_ends(
    parts: tuple[QWidget, FlowLayout],
) -> None:
    window, layout = parts
    window.resize(400, 30)
    window.show()
    assert layout.heightForWidth(400) == 30
    assert placed(layout) == [(0, 0, 100), (190, 0, 100), (300, 0, 100)]


def test_what_has_no_room_goes_to_the_next_line_at_the_end(parts: tuple[QWidget, FlowLayout]) -> None:
    window, layout = parts
    window.resize(250, 70)
    window.show()
    assert (layout.minimumSize().width(), layout.heightForWidth(250)) == (100, 70)
    assert placed(layout) == [(0, 0, 100), (150, 0, 100), (150, 40, 100)]
    window.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    layout.setGeometry(window.rect())
    assert placed(layout) == [(150, 0, 100), (0, 0, 100), (0, 40, 100)]


def test_free_space_is_shared_and_a_largest_width_is_kept(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    small, large, hidden = QWidget(window), QWidget(window), QWidget(window)
    small.setMaximumWidth(60)
    hidden.hide()
    layout = fill(FlowLayout(window), (small, 1), (hidden, 1), (large, 1), spacing=0)
    window.resize(300, 30)
    window.show()
    assert [layout.itemAt(place).geometry().width() for place in (0, 2)] == [60, 240]  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [300, 700])
def test_a_question_is_not_wider_than_its_window(qtbot: QtBot, width: int) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(width, 600)
    window.show()
    box = MessageBox(QMessageBox.Icon.Question, "Title", _LONG, parent=window)
    box.setInformativeText(_LONG)
    for words in ("Move everything and restart", "Leave everything as it is"):
        box.addButton(words, QMessageBox.ButtonRole.ActionRole)
    box.open()
    qtbot.waitExposed(box)
    assert box.width() <= width
    assert [*clipped(box), *lost(box)] == []
    box.close()


def test_a_dialog_that_is_too_high_scrolls_above_its_buttons(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(400, 400)
    dialog, content = QDialog(window), QWidget()
    fill(QVBoxLayout(content), *(text_label(_LONG, wraps=True) for _place in range(12)))
    close = QPushButton("Close")
    fill(QVBoxLayout(dialog), DialogBody(content), fill(FlowLayout(), 1, close))
    fit_dialog(dialog, 500)
    dialog.show()
    assert dialog.width() <= 400
    assert dialog.height() <= 400
    assert [*clipped(dialog), *lost(dialog)] == []
    assert close.geometry().bottom() < dialog.height()


def test_parts_and_values_go_below_each_other_where_they_have_no_room(qtbot: QtBot) -> None:
    left, right, facts = QWidget(), QWidget(), FactsGrid()
    title, value = QLabel("Title"), text_label("value " * 9, wraps=True)
    facts.add(title, value)
    fill(QVBoxLayout(right), facts)
    split = TurningSplitter((left, right), (1, 2), 60)
    qtbot.addWidget(split)
    em = split.fontMetrics().averageCharWidth()
    split.resize(120 * em, 300)
    split.show()
    assert split.orientation() == Qt.Orientation.Horizontal
    assert value.y() == title.y()
    split.resize(30 * em, 300)
    assert split.orientation() == Qt.Orientation.Vertical
    qtbot.waitUntil(lambda: value.y() > title.y())
    assert [*clipped(split), *lost(split)] == []


def test_the_room_is_divided_by_the_shares_whatever_the_parts_ask_for(qtbot: QtBot) -> None:
    """A list that asks for much room took more than the larger share."""
    greedy, modest = QListWidget(), QWidget()
    split = TurningSplitter((greedy, modest), (1, 3), 60)
    qtbot.addWidget(split)
    split.resize(800, 300)
    split.show()
    assert greedy.width() == pytest.approx(200, abs=10)
    split.setSizes([400, 400])
    split.resize(900, 300)
    assert greedy.width() >= 400, "where the user has moved the handle, it stays"


@pytest.mark.parametrize("make", [WrappingButton, WrappingCheckBox])
def test_words_without_blanks_wrap_too(qtbot: QtBot, make: type[WrappingButton | WrappingCheckBox]) -> None:
    words = "在此对话中查找的文本，并把它们保存为新对话的默认设置"
    button = make(words)
    qtbot.addWidget(button)
    button.show()
    on_one_line, high = button.sizeHint().width(), button.height()
    assert button.minimumSizeHint().width() < on_one_line / 2
    button.resize(on_one_line // 2, high)
    lines = button.text().split("\n")
    assert len(lines) > 1
    assert "".join(lines) == words
    assert button.sizeHint().height() > high


@pytest.mark.parametrize("direction", list(Qt.LayoutDirection)[:2])
def test_no_part_of_a_splitter_is_cut_off_at_its_end(qtbot: QtBot, direction: Qt.LayoutDirection) -> None:
    left, right = QListWidget(), QListWidget()
    split = TurningSplitter((left, right), (36, 64), 60)
    qtbot.addWidget(split)
    split.setLayoutDirection(direction)
    split.resize(738, 400)
    split.show()
    for part in (left, right):
        assert split.rect().contains(part.geometry())
