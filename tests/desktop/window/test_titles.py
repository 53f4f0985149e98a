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
