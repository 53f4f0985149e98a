"""Messages are read aloud from the window: begun, stopped, and only where the system has a voice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from desktop.services.system import speech
from desktop.services.system.speech import SpeechProgram
from desktop.views.transcript.commands import add_message_actions
from tests.desktop.accessible import faults
from tests.desktop.hand import Hand
from tests.desktop.services.system.test_speech import SAYS, said

pytestmark = pytest.mark.gui
CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "said"


@pytest.fixture
def hand(qtbot, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    voice = SpeechProgram(sys.executable, ("-c", SAYS, str(log), "{language}"))
    monkeypatch.setattr(speech, "find_speech_program", lambda: voice)
    (tmp_path / "data").mkdir()
    found = Hand(qtbot, tmp_path / "data")
    found.load()
    yield found
    found.close()


def menu_of(hand: Hand, message: int) -> dict[str, bool]:
    transcript = hand.window.chat.transcript
    transcript.flush()
    menu = QMenu()
    add_message_actions(menu, transcript._parts, transcript.messages.message(message).item)
    return {action.text(): action.isEnabled() for action in menu.actions()}


def test_a_reply_is_read_by_sentence_with_its_code_only_named(hand: Hand, log: Path) -> None:
    code = "```python\nx = 1\ny = 2\n```\n"
    hand.echo.chat.reply = f"<think>No.</think># Peas\n\nSow **them** early. In 3.5 weeks?\n\n{code}"
    hand.say("When?")
    strip = hand.window.chat.read_aloud
    hand.press(Qt.Key.Key_H, CTRL_SHIFT)
    assert strip.isVisible()
    assert faults(strip) == []
    hand.qtbot.waitUntil(lambda: not strip.isVisible())
    words = ["Peas", "Sow them early.", "In 3.5 weeks?", "Code in python, 2 lines."]
    assert said(log) == [f"en: {each}" for each in words]


def test_reading_is_stopped_by_the_button_the_key_and_another_chat(hand: Hand, log: Path) -> None:
    hand.echo.chat.reply = "This takes forever. And then this."
    hand.say("How long?")
    chat, own = hand.window.chat, hand.session.messages.items()[0].id
    strip = chat.read_aloud
    assert menu_of(hand, own)["Read aloud"]
    chat.transcript.act("speak", own)
    hand.qtbot.waitUntil(lambda: said(log) == ["en: How long?"])
    hand.qtbot.waitUntil(lambda: not strip.isVisible())
    ends = (
        lambda: QTest.mouseClick(strip.stop, Qt.MouseButton.LeftButton),
        lambda: hand.press(Qt.Key.Key_H, CTRL_SHIFT),
        hand.session.new_conversation,
    )
    reply, before = hand.session.messages.items()[1].id, 1
    for end in ends:
        chat.transcript.act("speak", reply)
        before += 1
        hand.qtbot.waitUntil(lambda count=before: len(said(log)) == count)
        assert strip.isVisible()
        end()
        assert not strip.isVisible()
        assert not strip.speech.speaking
    assert "en: And then this." not in said(log)


def test_a_closed_window_is_silent(hand: Hand, log: Path) -> None:
    hand.echo.chat.reply = "This takes forever."
    hand.say("How long?")
    strip = hand.window.chat.read_aloud
    hand.press(Qt.Key.Key_H, CTRL_SHIFT)
    hand.qtbot.waitUntil(lambda: said(log) == ["en: This takes forever."])
    hand.window.close()
    assert not strip.speech.speaking


def test_without_a_voice_it_is_not_offered(qtbot, tmp_path: Path) -> None:
    hand = Hand(qtbot, tmp_path)
    hand.load()
    hand.say("apples")
    assert "Read aloud" not in menu_of(hand, hand.session.messages.items()[1].id)
    action = hand.window.actions_by_name["read_aloud"]
    assert not action.isEnabled()
    assert "No program that reads text aloud" in hand.window.commands.states.why_not("read_aloud")
    hand.close()
