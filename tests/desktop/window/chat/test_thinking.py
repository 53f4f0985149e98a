"""The composer's control for thinking: shown for models that have a switch, kept with each chat, sent with
each request and kept with each reply.
"""

from __future__ import annotations

import dataclasses
import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.views.composer.thinking_picker import ThinkingPicker
from desktop.views.transcript.rows import RowKind
from engine.settings import AdapterSettings, ThinkingSettings
from tests.desktop.hand import Hand

Key = Qt.Key
SWITCHES = {
    "effort.gguf": ((("low", ""), ("medium", ""), ("high", "")), "medium"),
    "hybrid.gguf": ((("off", ""), ("on", "</muse>")), "off"),
    "either.gguf": ((("off", ""), ("on", "")), ""),
}


@pytest.fixture
def hand(qtbot, qapp, tmp_path, monkeypatch):
    found = Hand(qtbot, tmp_path)
    describe = found.echo.describe

    def described(path):
        levels, default = SWITCHES.get(path.name, ((), ""))
        tags = (("<muse>", "</muse>"),) if levels else ()
        return dataclasses.replace(
            describe(path), thinking_levels=levels, thinking_default=default, thinking=tags
        )

    monkeypatch.setattr(found.echo, "describe", described)
    yield found
    found.close()


def picker(hand: Hand) -> ThinkingPicker:
    return hand.window.chat.composer.thinking


def entries(hand: Hand) -> list[str]:
    return [("*" if each.isChecked() else "") + each.text() for each in picker(hand).entries()]


def choose(hand: Hand, words: str) -> None:
    next(each for each in picker(hand).entries() if each.text() == words).trigger()


def kinds(hand: Hand) -> list[RowKind]:
    """Of the rows of the last message."""
    rows = hand.window.chat.transcript.messages.all[-1].rows
    return [row.kind for row in rows if row.kind in (RowKind.TEXT, RowKind.THOUGHT)]


def asked(hand: Hand) -> str:
    return hand.echo.chat.requests[-1].thinking.thinking


def test_only_a_model_with_a_switch_has_the_control(hand) -> None:
    assert not picker(hand).isVisible()
    hand.load("plain.gguf")
    assert not picker(hand).isVisible()
    assert not hand.window.actions_by_name["thinking"].isEnabled()
    hand.load("effort.gguf")
    assert picker(hand).isVisible()
    assert (picker(hand).text(), picker(hand).accessibleName()) == (
        " Medium", "Thinking: automatic (medium)",
    )  # fmt: skip
    assert entries(hand) == ["*Automatic (medium)", "Low", "Medium", "High"]
    hand.load("either.gguf")
    assert (picker(hand).text(), entries(hand)) == (" Automatic", ["*Automatic", "Off", "On"])
    hand.session.unload_model()
    hand.wait_for("no_model")
    assert not picker(hand).isVisible()


def test_a_choice_is_sent_and_kept_with_its_chat_and_with_the_reply(hand) -> None:
    hand.load("effort.gguf")
    hand.say("one")
    assert asked(hand) == "auto"
    choose(hand, "High")
    assert hand.box.hasFocus()
    assert (picker(hand).text(), picker(hand).accessibleName()) == (" High", "Thinking: high")
    hand.say("two")
    assert asked(hand) == "high"
    reply = hand.window.services.provenance.of(hand.items()[-1].id)
    assert reply.settings(ThinkingSettings) == {"thinking": "high"}
    first = hand.session.conversation
    hand.window.actions_by_name["new_chat"].trigger()
    assert picker(hand).text() == " Medium"
    hand.say("three")
    assert asked(hand) == "auto"
    hand.session.open_conversation(first)
    assert picker(hand).text() == " High"
    hand.restart()
    hand.load("effort.gguf")
    hand.session.open_conversation(first)
    assert entries(hand) == ["Automatic (medium)", "Low", "Medium", "*High"]
    choose(hand, "Automatic (medium)")
    hand.say("four")
    assert asked(hand) == "auto"


def test_another_model_takes_the_nearest_level(hand) -> None:
    hand.load("effort.gguf")
    choose(hand, "Low")
    hand.load("hybrid.gguf")
    assert (picker(hand).text(), entries(hand)) == (" On", ["Automatic (off)", "Off", "*On"])
    assert hand.session.settings(ThinkingSettings).thinking == "low"


def test_a_reply_begins_in_the_thought_that_the_level_opens(hand) -> None:
    hand.load("hybrid.gguf")
    hand.echo.chat.reply = "Let me see.</muse>Yes."
    hand.say("one")
    assert hand.items()[-1].opened == ""
    choose(hand, "On")
    hand.say("two")
    assert hand.items()[-1].opened == "</muse>"


def test_the_keyboard_reaches_it(hand) -> None:
    hand.load("hybrid.gguf")
    hand.type("x")
    for _ in range(12):
        if picker(hand).hasFocus():
            break
        hand.press(Key.Key_Tab)
    assert picker(hand).hasFocus()
    hand.window.actions_by_name["thinking"].trigger()
    menu = QApplication.activePopupWidget()
    assert menu is picker(hand).menu()
    assert menu.geometry().bottom() <= picker(hand).mapToGlobal(picker(hand).rect().topLeft()).y()
    assert menu.activeAction().text() == "Automatic (off)"
    QTest.keyClick(menu, Key.Key_Down)
    QTest.keyClick(menu, Key.Key_Down)
    QTest.keyClick(menu, Key.Key_Return)
    assert hand.session.settings(ThinkingSettings).thinking == "on"


def test_the_settings_pane_shows_the_same_value(hand) -> None:
    hand.load("hybrid.gguf")
    hand.window.inspector.changed.emit(ThinkingSettings, "thinking", "on")
    assert picker(hand).text() == " On"


def test_the_setting_is_disabled_for_a_model_without_a_switch(hand) -> None:
    row = hand.window.inspector.forms[ThinkingSettings].row("thinking")
    assert row.isEnabled()
    hand.load("plain.gguf")
    assert not row.isEnabled()
    hand.load("hybrid.gguf")
    assert row.isEnabled()


def test_adapters_with_their_own_template_have_its_tags_and_its_switch(hand) -> None:
    """While they are on in the open chat; what was written before that was known is shown again."""
    hand.load("plain.gguf")
    chat = hand.echo.chat
    chat.reply = "<muse>Let me see.</muse>Yes."
    hand.say("one")
    assert kinds(hand) == [RowKind.TEXT]
    levels = (("off", ""), ("on", "</muse>"))
    chat.adapted[("/muse",)] = dataclasses.replace(
        chat.info,
        thinking=(("<muse>", "</muse>"),),
        opens_thought="</muse>",
        thinking_levels=levels,
        thinking_default="on",
    )
    hand.session.set_settings(AdapterSettings(("/muse",)))
    hand.qtbot.waitUntil(picker(hand).isVisible)
    assert picker(hand).accessibleName() == "Thinking: automatic (on)"
    assert hand.window.actions_by_name["thinking"].isEnabled()
    assert hand.window.inspector.forms[ThinkingSettings].row("thinking").isEnabled()
    assert kinds(hand) == [RowKind.THOUGHT, RowKind.TEXT]
    chat.reply = "Let me see.</muse>Yes."
    hand.say("two")
    assert hand.items()[-1].opened == "</muse>"
    hand.window.navigation.new_chat()
    assert not picker(hand).isVisible()
    assert not hand.window.actions_by_name["thinking"].isEnabled()
    assert not hand.window.inspector.forms[ThinkingSettings].row("thinking").isEnabled()
    hand.say("three")
    assert hand.items()[-1].opened == ""


def test_a_reply_that_begins_before_its_adapters_are_known(hand) -> None:
    hand.load("plain.gguf")
    chat = hand.echo.chat
    chat.hold = threading.Event()
    chat.adapted[("/muse",)] = dataclasses.replace(
        chat.info, thinking=(("<muse>", "</muse>"),), opens_thought="</muse>"
    )
    hand.session.set_settings(AdapterSettings(("/muse",)))
    hand.type("one")
    hand.press(Key.Key_Return)
    assert hand.items()[-1].opened == ""
    hand.qtbot.waitUntil(lambda: hand.items()[-1].opened == "</muse>")
    chat.reply = "Let me see.</muse>Yes."
    chat.hold.set()
    hand.wait_for("idle")
    stored = hand.session.stores.kept.path(hand.session.conversation)[-1]
    assert stored.stats["opened"] == "</muse>"
