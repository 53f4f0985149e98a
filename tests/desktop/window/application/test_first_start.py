"""The first start: chats and the message box, no settings; what is changed is remembered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.desktop.hand import LARGE, Hand

pytestmark = pytest.mark.gui


@pytest.fixture
def hand(qtbot: QtBot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path, pane=False)
    yield found
    found.close()


def test_the_settings_pane_is_closed_at_first_and_then_as_it_was_left(hand: Hand) -> None:
    assert hand.window.sidebar.isVisible()
    assert not hand.window.inspector.isVisible()
    hand.restart()
    assert not hand.window.inspector.isVisible()
    hand.press(Qt.Key.Key_Period, Qt.KeyboardModifier.ControlModifier)
    assert hand.window.inspector.isVisible()
    hand.restart()
    hand.window.resize(LARGE)  # with wide fonts the screen has no room for it
    assert hand.window.inspector.isVisible()
    hand.click("Show or hide settings", hand.window.top_bar)
    assert not hand.window.inspector.isVisible()


def test_a_model_whose_file_is_gone_is_named_and_another_one_is_offered(hand: Hand) -> None:
    hand.load()
    (hand.folder / "echo.gguf").unlink()
    hand.restart()
    banner = hand.window.chat.banner
    hand.qtbot.waitUntil(banner.isVisible)
    assert banner.text.text() == (
        f"echo.gguf was not loaded: it is no longer in {hand.folder}. Choose another model, or open this one "
        "where it is now."
    )
    banner.hide()
    hand.type("Hello")
    hand.press(Qt.Key.Key_Return)
    assert "No model is loaded." in banner.text.text()
    assert hand.box.toPlainText() == "Hello"
    hand.click("Choose a model", banner)
    menu = hand.window.picker.menu()
    assert menu.isVisible()
    menu.close()
    hand.load("other.gguf")
    assert banner.isHidden()


def test_a_last_model_that_cannot_be_looked_at_does_not_stop_the_start(hand: Hand) -> None:
    hand.load()
    hand.close()
    (preferences,) = hand.folder.glob("preferences.json")
    saved = json.loads(preferences.read_text("utf-8"))
    preferences.write_text(json.dumps({**saved, "last_model": str(hand.folder / ("n" * 300))}), "utf-8")
    note = hand.folder / "note.txt"
    note.write_text("words")
    hand.open_window(files=[note])
    held = hand.desktop.services.composer.attachments.held
    hand.qtbot.waitUntil(lambda: len(held(hand.session.conversation)) == 1)


def test_places_of_an_older_version_are_kept(hand: Hand) -> None:
    """It wrote only what was open, as texts."""
    hand.window._geometry.setValue("right", "true")
    hand.window._geometry.setValue("left", "false")
    hand.window._geometry.sync()
    hand.desktop.window.panes.set_requested("right", True)
    hand.desktop.window.panes.set_requested("left", False)
    hand.restart()
    assert hand.window.inspector.isVisible()
    assert not hand.window.sidebar.isVisible()
