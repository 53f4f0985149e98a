"""How a search marks what it found, and which control it leads to."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QLineEdit, QPushButton, QScrollArea, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.settings.search import excerpt, first_control, marked, query_words, show_in

LONG = (
    "Keeps only the likeliest tokens whose probabilities together reach this share of the whole mass of all."
)


def bare(text: str) -> str:
    """Rich text with its marks as brackets."""
    return re.sub(r"<span[^>]*>([^<]*)</span>", r"[\1]", text)


def test_words_of_a_query() -> None:
    assert query_words("  Top  P ") == ["top", "p"]
    assert query_words(" ") == []


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("Top P", ["top"], "[Top] P"), ("Top P", ["p"], "To[p] [P]"),
        ("a < b & c", ["b"], "a &lt; [b] &amp; c"),
        ("a <b>", ["<b>"], "a [&lt;b&gt;]"), ("Temperature", ["temp", "temperature"], "[Temperature]"),
        ("a+b", ["+"], "a[+]b"), ("Top P", ["x"], ""), ("Top P", [], ""),
    ],
)  # fmt: skip
def test_words_are_marked(text: str, words: list[str], shown: str) -> None:
    assert bare(marked(text, words, QPalette())) == shown


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("keeps", "[Keeps] only the likeliest tokens whose probabilities …"),
        ("tokens", "Keeps only the likeliest [tokens] whose probabilities together reach this …"),
        ("together", "… the likeliest tokens whose probabilities [together] reach this share of the whole "
         "mass of all."),
        ("all.", "… together reach this share of the whole mass of [all.]"),
        ("nothing", ""),
    ],
)  # fmt: skip
def test_an_excerpt_has_whole_words_around_the_first_match(word: str, shown: str) -> None:
    assert bare(excerpt(LONG, [word], QPalette())) == shown


def test_a_short_text_is_shown_whole() -> None:
    assert bare(excerpt("Top P", ["p"], QPalette())) == "To[p] [P]"


@pytest.fixture
def page(qtbot: QtBot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    column = QVBoxLayout(made)
    label, off, line = QLabel("Name"), QPushButton("Off"), QLineEdit()
    label.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    off.setEnabled(False)
    for widget in (label, off, line, QPushButton("Later")):
        column.addWidget(widget)
    made.show()
    return made


def test_the_first_control_is_one_that_can_be_used(page: QWidget) -> None:
    line = page.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    assert first_control(page) is line
    assert first_control(line) is line
    line.hide()
    found = first_control(page)
    assert isinstance(found, QPushButton)
    assert found.text() == "Later"
    assert first_control(QLabel("Name")) is None


def test_a_row_far_below_is_scrolled_to_and_focused(qtbot: QtBot) -> None:
    area, body, row = QScrollArea(), QWidget(), QLineEdit()
    qtbot.addWidget(area)
    body.setFixedSize(100, 2000)
    row.setParent(body)
    row.move(0, 1000)
    area.setWidget(body)
    area.resize(150, 400)
    area.show()
    area.activateWindow()
    show_in(area, row, row)
    assert area.verticalScrollBar().value() == 1000 - area.viewport().height() // 4
    assert area.focusWidget() is row
    show_in(area, body, None)
    assert area.verticalScrollBar().value() == 0
