"""The emoji picker: by keys alone, by the mouse, and what it remembers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.settings import Appearance
from desktop.views.composer.emoji_picker import EmojiPicker
from desktop.views.widgets.theme import tokens
from tests.desktop.accessible import faults
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui
Key = Qt.Key


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    yield found
    found.close()


def opened(hand: Hand) -> EmojiPicker:
    hand.press(Key.Key_E, Qt.KeyboardModifier.ControlModifier)
    picker = hand.window.composer_controller.emoji
    assert picker is not None
    hand.qtbot.waitUntil(picker.isVisible)
    return picker


def test_a_name_is_searched_and_the_emoji_goes_to_the_caret(hand: Hand) -> None:
    hand.type("good !")
    hand.press(Key.Key_Left)
    picker = opened(hand)
    QTest.keyClicks(picker.query, "thumbs up")
    assert picker.name.text() == "thumbs up"
    QTest.keyClick(picker.query, Key.Key_Return)
    assert not picker.isVisible()
    assert hand.window.chat.composer.text() == "good 👍!"
    hand.qtbot.waitUntil(lambda: QApplication.focusWidget() is hand.box)


def test_the_grid_is_walked_by_keys_and_each_cell_is_named(hand: Hand) -> None:
    picker = opened(hand)
    assert not list(faults(picker))
    QTest.keyClick(picker.query, Key.Key_Down)
    hand.qtbot.waitUntil(picker.grid.hasFocus)
    first = picker.grid.currentItem().text()
    QTest.keyClick(picker.grid, Key.Key_Right)
    item = picker.grid.currentItem()
    assert item.text() != first
    assert item.data(Qt.ItemDataRole.AccessibleTextRole) == picker.name.text() != ""
    QTest.keyClick(picker.grid, Key.Key_F)  # letters go on with the search
    assert picker.query.text() == "f"
    QTest.keyClicks(picker.query, "ox")
    assert picker.name.text() == "fox"
    QTest.keyClick(picker.query, Key.Key_Escape)
    assert not picker.isVisible()
    assert hand.window.chat.composer.text() == ""


def test_the_emoji_used_last_come_first_also_after_a_restart(hand: Hand) -> None:
    for name in ("fox", "rocket"):
        picker = opened(hand)
        QTest.keyClicks(picker.query, name)
        center = picker.grid.visualItemRect(picker.grid.item(0)).center()
        QTest.mouseClick(picker.grid.viewport(), Qt.MouseButton.LeftButton, pos=center)
    hand.restart()
    picker = opened(hand)
    assert [picker.grid.item(row).text() for row in (0, 1)] == ["🚀", "🦊"]


def test_a_name_that_no_emoji_has(hand: Hand) -> None:
    picker = opened(hand)
    QTest.keyClicks(picker.query, "zzzz")
    assert picker.name.text() == "No emoji has this name."
    QTest.keyClick(picker.query, Key.Key_Return)
    assert picker.isVisible()


def test_every_cell_has_room_for_its_emoji(hand: Hand) -> None:
    """All were as wide as the last one: without a font for that flag, most cells were empty."""
    picker = opened(hand)
    assert picker.grid.textElideMode() == Qt.TextElideMode.ElideNone  # dots stood for joined emoji
    for query in ("", "fox", "face"):
        picker.query.setText(query)
        QApplication.processEvents()
        for number in (0, 1, picker.grid.count() - 1):
            item = picker.grid.item(number)
            if item is not None:
                area = picker.grid.visualItemRect(item)
                assert area.size() == picker.grid.gridSize()


@pytest.mark.parametrize("contrast", ["normal", "high"])
def test_the_grid_has_an_outline_and_the_current_emoji_a_frame(hand: Hand, contrast: str) -> None:
    settings = hand.desktop.session.settings(Appearance)
    hand.desktop.session.set_settings(dataclasses.replace(settings, theme="light", contrast=contrast))
    picker = opened(hand)
    colours = tokens("light-contrast" if contrast == "high" else "light")
    picture = picker.grid.grab().toImage()
    assert picture.pixelColor(picture.width() // 2, 0).name() == colours["edge"]
    cell = picker.grid.visualItemRect(picker.grid.item(0)).translated(picker.grid.viewport().pos())
    found = {picture.pixelColor(x, cell.center().y()).name() for x in range(cell.left(), cell.right())}
    assert {colours["accent"], colours["selected"]} <= found
