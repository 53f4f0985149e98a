"""Several chats answer at once in the window, with keys and the mouse."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox

from desktop.items.chats.chat_list import CHAT, RUNNING_ROLE
from tests.desktop.hand import Hand

Key = Qt.Key


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def send(hand: Hand, text: str) -> threading.Event:
    """Send a message; its reply waits for the event."""
    gate = hand.echo.chat.hold = threading.Event()
    before = len(hand.echo.chat.requests)
    hand.type(text)
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) > before)
    return gate


def writing(hand: Hand) -> list[str]:
    """The titles of the chats that the sidebar shows as being answered."""
    rows = hand.desktop.services.chat_list.rows
    found = [rows.index(place) for place, row in enumerate(rows.shown()) if row.kind == CHAT]
    return [index.data() for index in found if index.data(RUNNING_ROLE)]


def test_two_chats_answer_at_once_each_with_its_own_stop(hand) -> None:
    one = send(hand, "apples")
    apples = hand.session.conversation
    assert hand.button("Stop the reply").isVisible()
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert hand.session.state == "idle"
    assert hand.window.chat.status.state.text() == "Ready"
    two = send(hand, "pears")
    pears = hand.session.conversation
    assert sorted(writing(hand)) == ["apples", "pears"]
    assert not hand.window.composer_controller.waiting.rows.rows, "nothing waits"
    hand.window.navigation.open_chat(apples)
    hand.press(Key.Key_Escape)
    hand.wait_for("idle")
    assert hand.items()[-1].footer.endswith("stopped by you")
    assert writing(hand) == ["pears"]
    hand.window.navigation.open_chat(pears)
    assert hand.button("Stop the reply").isVisible()
    two.set()
    hand.wait_for("idle")
    assert hand.texts() == ["pears", "pears"]
    assert writing(hand) == []
    assert not one.is_set()


def test_a_second_message_waits_for_the_reply_of_its_own_chat(hand) -> None:
    one = send(hand, "apples")
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    two = send(hand, "pears")
    hand.type("plums")
    hand.press(Key.Key_Return)
    assert [row.text.words for row in hand.window.composer_controller.waiting.rows.rows] == ["plums"]
    hand.echo.chat.hold = None
    two.set()
    hand.qtbot.waitUntil(lambda: hand.texts() == ["pears", "pears", "plums", "plums"])
    hand.wait_for("idle")
    assert writing(hand) == ["apples"]
    one.set()
    hand.qtbot.waitUntil(lambda: not hand.session.busy)


@pytest.mark.slow
def test_a_long_message_is_counted_and_sent_while_another_chat_is_answered(hand) -> None:
    one = send(hand, "apples")
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    hand.echo.chat.hold = None
    long = "word " * 600
    hand.window.chat.composer.set_text(long)
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2 and hand.session.state == "idle")
    assert writing(hand) == ["apples"]
    one.set()
    hand.qtbot.waitUntil(lambda: not hand.session.busy)


def test_loading_a_model_asks_how_many_replies_would_end(hand) -> None:
    send(hand, "apples")
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    send(hand, "pears")
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    other = hand.folder / "other.gguf"
    other.touch()
    hand.window.model_controller.open(other)
    hand.qtbot.waitUntil(lambda: any(box.isVisible() for box in hand.window.findChildren(QMessageBox)))
    (box,) = (box for box in hand.window.findChildren(QMessageBox) if box.isVisible())
    assert box.informativeText().startswith("2 replies are being written.")
    hand.click("Stop and load", box)
    hand.qtbot.waitUntil(lambda: not hand.session.busy and hand.session.model.name == "other")
    assert writing(hand) == []


@pytest.mark.slow
def test_closing_the_window_keeps_both_chats(hand) -> None:
    send(hand, "apples")
    apples = hand.session.conversation
    hand.press(Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    send(hand, "pears")
    hand.restart()
    assert hand.texts() == ["pears", ""]
    hand.window.navigation.open_chat(apples)
    assert hand.texts() == ["apples", ""]
    assert not any(item.running for item in hand.items())
