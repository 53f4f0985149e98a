"""Titles that the model writes, in the window."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from desktop.items.chats.chat_list import CHAT
from desktop.settings import Behaviour
from engine.settings import AdapterSettings
from tests.desktop.hand import Hand


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path, titles=True)
    found.load()
    found.echo.chat.reply = "apples in a garden"
    yield found
    found.close()


def listed(hand: Hand) -> list[str]:
    rows = hand.desktop.services.chat_list.rows
    return [rows.index(place).data() for place, row in enumerate(rows.shown()) if row.kind == CHAT]


def settled(hand: Hand) -> None:
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.titles.waiting)


def test_the_sidebar_and_the_window_show_the_title(hand) -> None:
    hand.say("what grows in my garden")
    settled(hand)
    assert listed(hand) == ["a garden"]
    assert hand.window.windowTitle() == "a garden – Inglenook"
    assert hand.texts() == ["what grows in my garden", "apples in a garden"]
    assert hand.items()[-1].variant_count == 1, "the question is in no chat"
    assert hand.window.chat.status.state.text() == "Ready"
    hand.restart()
    assert listed(hand) == ["a garden"]


def test_the_setting_switches_it_off(hand) -> None:
    behaviour = hand.session.settings(Behaviour)
    assert behaviour.model_titles
    hand.session.set_settings(dataclasses.replace(behaviour, model_titles=False))
    hand.say("what grows in my garden")
    settled(hand)
    assert listed(hand) == ["what grows in my garden"]
    assert len(hand.echo.chat.requests) == 1


@pytest.mark.slow
def test_the_window_closes_while_a_title_is_written(hand) -> None:
    chat = hand.echo.chat
    chat.hold = reply = threading.Event()
    hand.session.submit("what grows in my garden")
    hand.qtbot.waitUntil(lambda: len(chat.requests) == 1)
    chat.hold = threading.Event()  # of the title
    reply.set()
    hand.qtbot.waitUntil(lambda: len(chat.requests) == 2)
    assert hand.desktop.services.titles.waiting
    hand.restart()
    assert listed(hand) == ["what grows in my garden"]


def test_a_thought_in_the_tags_of_an_adapter_is_no_title(hand) -> None:
    chat = hand.echo.chat
    chat.adapted[("/muse",)] = dataclasses.replace(chat.info, thinking=(("(muse)", "(end)"),))
    hand.session.set_settings(AdapterSettings(("/muse",)))
    hand.qtbot.waitUntil(lambda: hand.session.thought_tags == (("(muse)", "(end)"),))
    chat.reply = "apples in (muse) a garden"
    hand.say("what grows in my garden")
    settled(hand)
    assert listed(hand) == ["what grows in my garden"]


def suggest(hand: Hand) -> None:
    hand.window.actions_by_name["suggest_title"].trigger()
    settled(hand)


def notice(hand: Hand) -> str:
    return hand.window.chat.banner.text.text()


def test_a_title_is_suggested_on_request_and_can_be_undone(hand) -> None:
    hand.say("what grows in my garden")
    settled(hand)
    hand.echo.chat.reply = "pears too"
    hand.say("and beside the house")
    assert hand.session.rename_conversation(hand.session.conversation, "Mine")
    hand.echo.chat.reply = "well then Garden and house"
    suggest(hand)
    assert listed(hand) == ["Garden and house"], "of the user's own title, too"
    asked = hand.echo.chat.requests[-1].messages
    assert "and beside the house\n\nassistant: pears too" in asked[0].content
    assert len(asked) == 2
    assert "“Mine” is now called “Garden and house”." in notice(hand)
    hand.click("Undo")
    assert listed(hand) == ["Mine"]
    hand.echo.chat.reply = "well then something else entirely"
    suggest(hand)
    assert listed(hand) == ["Mine"]
    assert notice(hand) == "The model suggested no other title for “Mine”."


def test_a_chat_that_is_renamed_meanwhile_keeps_that_name(hand) -> None:
    hand.say("what grows in my garden")
    settled(hand)
    hand.echo.chat.hold = go_on = threading.Event()
    hand.echo.chat.reply = "well then Garden at home"
    hand.window.actions_by_name["suggest_title"].trigger()
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == 3)
    assert hand.session.rename_conversation(hand.session.conversation, "Mine")
    go_on.set()
    settled(hand)
    assert listed(hand) == ["Mine"]


def test_why_no_title_can_be_suggested(hand) -> None:
    action = hand.window.actions_by_name["suggest_title"]
    assert not action.isEnabled()
    hand.say("what grows in my garden")
    settled(hand)
    assert action.isEnabled()
    hand.session.unload_model()
    hand.wait_for("no_model")
    suggest(hand)
    assert notice(hand) == "No model is loaded."
    assert hand.session.new_temporary()
    hand.window.sidebar_controller.suggest_title(hand.session.conversation)
    assert len(hand.echo.chat.requests) == 2
