"""A model without a chat template: the chat says what it is good for, the library which template is used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PySide6.QtWidgets import QPushButton

from desktop.items.models.local_models import template_text
from desktop.views.chat.welcome_page import BASE_MODEL
from engine.core import ModelInfo
from engine.settings import LoadSettings
from engine.text.template.fallback import _FORMATS
from tests.desktop.fakes import ECHO_INFO, EchoApi
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui


class BaseDoor(EchoApi):
    """Models whose names begin with "base" have no chat template."""

    def describe(self, path: Path) -> ModelInfo:
        info = super().describe(path)
        base = path.stem.startswith("base")
        return dataclasses.replace(info, has_chat_template=False, fallback_template="gemma") if base else info


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path, BaseDoor())
    yield found
    found.close()


def shown_buttons(hand: Hand) -> list[str]:
    buttons = hand.window.chat.welcome.ready.findChildren(QPushButton)
    return [button.text() for button in buttons if button.isVisible()]


def test_an_empty_chat_says_so_and_offers_a_notebook(hand) -> None:
    hand.load("base.gguf")
    assert BASE_MODEL in hand.window.chat.welcome.ready.text.text()
    assert BASE_MODEL.startswith("This is a base model without a chat template.")
    assert not hand.window.chat.banner.isVisible()  # said once is enough
    assert shown_buttons(hand) == ["New notebook"]
    hand.click("New notebook", hand.window.chat.welcome)
    assert hand.session.notebook
    hand.window.navigation.new_chat()
    hand.load("echo.gguf")
    assert BASE_MODEL not in hand.window.chat.welcome.ready.text.text()
    assert "New notebook" not in shown_buttons(hand)
    assert len(shown_buttons(hand)) == 3


def test_a_chat_with_messages_says_so_once_for_each_load(hand) -> None:
    banner = hand.window.chat.banner
    hand.load("echo.gguf")
    hand.say("Hello")
    hand.load("base.gguf")
    assert BASE_MODEL in banner.text.text()
    assert (banner.isVisible(), banner.offer.text()) == (True, "New notebook")
    banner.dismiss.click()
    hand.say("Hello again")
    chat = hand.session.conversation
    hand.window.navigation.new_chat()
    hand.window.navigation.open_chat(chat)
    assert not banner.isVisible()
    hand.load("echo.gguf")
    assert not banner.isVisible()
    hand.load("base.gguf")
    banner.offer.click()
    assert hand.session.notebook
    assert not banner.isVisible()


def test_a_notebook_or_a_template_of_the_user_is_no_reason_to_warn(hand) -> None:
    hand.load("echo.gguf")
    hand.say("Hello")
    chat = hand.session.conversation
    hand.session.new_notebook()
    hand.load("base.gguf")
    banner = hand.window.chat.banner
    assert not banner.isVisible()
    hand.window.navigation.open_chat(chat)  # Not reported yet.
    assert BASE_MODEL in banner.text.text()
    assert banner.isVisible()
    hand.session.new_notebook()
    assert not banner.isVisible()
    hand.window.navigation.open_chat(chat)
    path = str(hand.folder / "base.gguf")
    hand.session.keep_for_model(path, LoadSettings, {"chat_template": "{{ messages }}"})
    hand.load("base.gguf")
    assert not banner.isVisible()
    assert not hand.session.base_model


def test_every_general_format_has_its_words() -> None:
    bare = dataclasses.replace(ECHO_INFO, has_chat_template=False)
    names = [*(name for name, _ in _FORMATS), "plain"]
    texts = {name: template_text(dataclasses.replace(bare, fallback_template=name)) for name in names}
    assert len(set(texts.values())) == len(texts)
    assert texts["gemma"] == "none; the general template Gemma is used"
    assert template_text(ECHO_INFO) == "the model's own"
    assert "embedding" in template_text(dataclasses.replace(ECHO_INFO, embedding=True), True)
    assert "only drafts" in template_text(dataclasses.replace(ECHO_INFO, assistant=True), True)
    assert "yours" in template_text(bare, True)
    assert "yours" in template_text(ECHO_INFO, True)
