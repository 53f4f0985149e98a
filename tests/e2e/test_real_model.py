"""A conversation with the starter model, by keys and clicks, through the real engine."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from desktop.app import EngineApi
from engine.settings import SamplerSettings, StopSettings
from tests.desktop.hand import Hand

Key = Qt.Key
CTRL, ALT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.AltModifier
LOAD_MS = 240_000  # the first start compiles the kernels
REPLY_MS = 120_000

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(600)]


def wait_for_reply(hand: Hand) -> str:
    hand.qtbot.waitUntil(
        lambda: hand.session.state == "idle" and not hand.session.replying_in, timeout=REPLY_MS
    )
    return hand.texts()[-1]


def say(hand: Hand, text: str) -> str:
    before = len(hand.texts())
    hand.type(text)
    hand.press(Key.Key_Return)
    assert len(hand.texts()) == before + 2
    return wait_for_reply(hand)


@pytest.mark.slow
def test_a_conversation_with_the_starter_model(qtbot, qapp, tmp_path, starter_path) -> None:
    hand = Hand(qtbot, tmp_path, api=EngineApi())
    try:
        hand.window.model_controller.open(starter_path)
        hand.wait_for("idle", timeout=LOAD_MS)
        _talk(hand)
        _stop_and_continue(hand)
        _edit_and_delete(hand)
        _restart(hand)
    finally:
        hand.close()


def _talk(hand: Hand) -> None:
    hand.session.set_settings(dataclasses.replace(hand.session.settings(SamplerSettings), temperature=0.0))
    hand.session.set_settings(dataclasses.replace(hand.session.settings(StopSettings), max_tokens=64))
    assert "Paris" in say(hand, "What is the capital of France?")
    assert hand.items()[-1].footer.count("tok/s") == 1
    assert hand.window.chat.status.reply.text().startswith("reply ")
    first = hand.texts()[-1]
    hand.press(Key.Key_R, CTRL)
    hand.qtbot.waitUntil(lambda: hand.items()[-1].variant_count == 2)
    assert wait_for_reply(hand) == first  # at temperature 0 the same again
    hand.press(Key.Key_Left, ALT)
    assert hand.items()[-1].variant_index == 0
    say(hand, "And of Italy?")
    assert len(hand.texts()) == 4


def _stop_and_continue(hand: Hand) -> None:
    hand.session.set_settings(dataclasses.replace(hand.session.settings(StopSettings), max_tokens=0))
    hand.type("Write a long story about a lighthouse keeper and the sea.")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.texts()[-1]) > 40, timeout=REPLY_MS)
    hand.press(Key.Key_Escape)
    hand.qtbot.waitUntil(lambda: hand.session.state == "idle")
    stopped = wait_for_reply(hand)
    assert "stopped by you" in hand.items()[-1].footer
    hand.session.set_settings(dataclasses.replace(hand.session.settings(StopSettings), max_tokens=12))
    hand.press(Key.Key_Return, ALT)
    assert hand.session.state != "idle"
    longer = wait_for_reply(hand)
    assert longer.startswith(stopped)
    assert len(longer) > len(stopped)


def _edit_and_delete(hand: Hand) -> None:
    count = len(hand.texts())
    hand.box.setFocus()
    hand.press(Key.Key_Up)
    editor = QApplication.focusWidget()
    editor.selectAll()
    hand.qtbot.keyClicks(editor, "Say hello.")
    hand.qtbot.keyClick(editor, Key.Key_Return, CTRL)
    hand.qtbot.waitUntil(lambda: hand.texts()[-2] == "Say hello.")
    assert wait_for_reply(hand)
    assert hand.items()[-2].variant_count == 2
    hand.window.chat.transcript.action.emit("delete", hand.items()[2].id)
    assert len(hand.texts()) == 2
    hand.click("Undo", hand.window.chat.banner)
    assert len(hand.texts()) == count


def _restart(hand: Hand) -> None:
    before = hand.texts()
    hand.restart()
    assert hand.texts() == before
    assert hand.session.settings(SamplerSettings).temperature == 0.0
    hand.wait_for("idle", timeout=LOAD_MS)  # the last model is loaded automatically
    say(hand, "Thank you. Goodbye.")
    assert len(hand.texts()) == len(before) + 2
