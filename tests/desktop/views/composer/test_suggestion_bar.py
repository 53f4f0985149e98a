"""The bar above the composer with one suggestion at a time."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from desktop.views.composer.suggestion_bar import SuggestionBar


@pytest.fixture
def bar(qtbot: QtBot) -> SuggestionBar:
    made = SuggestionBar()
    qtbot.addWidget(made)
    made.resize(900, 40)
    return made


def click(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_a_suggestion_with_two_ways(bar: SuggestionBar, qtbot: QtBot) -> None:
    assert bar.isHidden()
    done: list[str] = []
    for _ in range(2):
        bar.offer("long", "Too long.", "Trim", lambda: done.append("trim"), "warning",
                  ("Send anyway", lambda: done.append("send")))  # fmt: skip
        assert (bar.words.text(), bar.accessibleName(), bar.property("level")) == (
            "Too long.", "Too long.", "warning",
        )  # fmt: skip
        assert (bar.button.text(), bar.other.text()) == ("Trim", "Send anyway")
        assert (bar.button.isVisible(), bar.other.isVisible()) == (True, True)
        click(qtbot, bar.other if done else bar.button)
        assert bar.isHidden()
    assert done == ["trim", "send"]


def test_one_without_a_way_is_only_told(bar: SuggestionBar) -> None:
    bar.offer("long", "Too long.", "Trim", lambda: None, "warning", ("Send anyway", lambda: None))
    bar.offer("reading", "Files are read.", "", None)
    assert (bar.button.isVisible(), bar.other.isVisible(), bar.property("level")) == (False, False, "info")
    assert bar.words.text() == "Files are read."


def test_it_is_withdrawn_by_its_subject(bar: SuggestionBar) -> None:
    bar.offer("long", "Too long.", "", None)
    bar.withdraw("reading")
    assert not bar.isHidden()
    bar.withdraw("long")
    assert bar.isHidden()


def test_dismissing_does_nothing_else(bar: SuggestionBar, qtbot: QtBot) -> None:
    done: list[str] = []
    bar.offer("long", "Too long.", "Trim", lambda: done.append("trim"))
    click(qtbot, bar.dismiss)
    assert bar.isHidden()
    assert done == []


def test_a_narrow_bar_has_its_buttons_below_the_text(bar: SuggestionBar) -> None:
    bar.offer("long", "Too long.", "Trim", lambda: None)
    wide = bar.words.geometry().bottom() > bar.button.geometry().top()
    bar.resize(200, 90)
    bar.layout().activate()
    assert wide
    assert bar.words.geometry().bottom() < bar.button.geometry().top()


@pytest.mark.parametrize(("width", "beside"), [(900, True), (460, False)])
def test_words_have_at_least_half_of_the_bar_or_stand_above_the_buttons(
    bar: SuggestionBar, width: int, beside: bool
) -> None:
    bar.resize(width, 80)
    bar.offer("long", "Some words.", "A button whose text is as long as this", lambda: None)
    bar.layout().activate()
    assert (bar.button.y() <= bar.words.geometry().bottom()) is beside


@pytest.mark.parametrize("name", ["dismiss", "button"])
def test_a_bar_with_the_keyboard_says_that_it_leaves(bar: SuggestionBar, qtbot: QtBot, name: str) -> None:
    left: list[None] = []
    bar.left.connect(lambda: left.append(None))
    bar.offer("long", "Too long.", "Trim", lambda: None)
    qtbot.waitExposed(bar)
    bar.hide()
    assert not left
    bar.offer("long", "Too long.", "Trim", lambda: None)
    bar.activateWindow()
    pressed = getattr(bar, name)
    pressed.setFocus()
    qtbot.waitUntil(pressed.hasFocus)
    qtbot.keyClick(pressed, Qt.Key.Key_Space)
    assert bar.isHidden()
    assert len(left) == 1
