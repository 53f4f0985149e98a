"""Passages of long files found by meaning, as the user sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from desktop.app import EngineApi
from desktop.services.composer.meaning import WORDS_ONLY
from desktop.store.attachments.message_format import Attachment
from engine.core import ModelInfo
from engine.errors import NotEnoughMemory
from engine.hub.local.scan import FoundModel
from tests.desktop.embedders import FakeEmbedder
from tests.desktop.fakes import EchoApi
from tests.desktop.hand import Hand, no_fetch

QUESTION = "Was there a vessel?"


class Case:
    """A window whose library has an embedding model in `folder`, unless it is deleted."""

    def __init__(self, qtbot, folder: Path) -> None:
        echo, self.fake = EchoApi(), FakeEmbedder()
        self.model = folder / "embed.gguf"
        self.model.write_bytes(b"weights")

        def describe(path: Path) -> ModelInfo:
            return replace(echo.describe(path), embedding=path.name == self.model.name)

        def find(folders, stop) -> Iterator[FoundModel]:
            if self.model.exists():
                yield FoundModel(self.model, "Embed", "")

        api = EngineApi(
            echo.open_chat, describe, no_fetch, echo.draft_problem, find, open_embedder=self.fake.open
        )
        (folder / "data").mkdir()
        self.hand = Hand(qtbot, folder / "data", echo, api=api)
        lines = [f"line {number} has five words" for number in range(4000)]
        lines[3000] = "A boat was painted green."
        path = folder / "long.txt"
        path.write_text("\n".join(lines))
        self.hand.load()
        self.controller = self.hand.window.composer_controller
        self.hand.window.files.open([path])
        qtbot.waitUntil(lambda: len(self.controller.files.held()) == 1)

    @property
    def held(self) -> Attachment:
        return self.controller.files.held()[0].attachment

    def wait_for(self, words: str) -> None:
        offers = self.controller.offers
        self.hand.qtbot.waitUntil(lambda: offers.isVisible() and words in offers.words.text())

    def trim(self) -> None:
        """Ask, and let the file be trimmed to its beginning."""
        self.hand.type(QUESTION)
        self.hand.box.setFocus()
        self.hand.press(Qt.Key.Key_Return)
        self.wait_for("too long")
        self.hand.click("Trim to fit")
        self.wait_for("trimmed to fit")


@pytest.fixture
def case(qtbot, tmp_path: Path) -> Iterator[Case]:
    made = Case(qtbot, tmp_path)
    yield made
    made.hand.close()


def test_with_an_embedding_model_they_are_found_by_meaning_and_sent(case: Case) -> None:
    case.trim()
    case.hand.click("Use matching passages")
    case.wait_for("by words and meaning")
    assert "A boat was painted green." in case.held.text
    assert case.held.note.endswith(" passages")
    assert case.fake.closed == 1
    case.hand.click("Use the beginnings")
    case.wait_for("trimmed to fit")
    case.hand.click("Use matching passages")
    case.wait_for("by words and meaning")
    assert len([role for role, _text in case.fake.read if role == "query"]) == 2
    case.hand.press(Qt.Key.Key_Return)
    case.hand.qtbot.waitUntil(lambda: len(case.hand.items()) == 2)
    assert "A boat was painted green." in case.hand.items()[0].text
    case.hand.wait_for("idle")


@pytest.mark.parametrize("way", ["Esc", "Stop", "dismissed", "another chat"])
def test_reading_is_shown_and_stopped(case: Case, way: str) -> None:
    case.trim()
    before = case.held
    case.fake.hold = threading.Event()
    case.hand.click("Use matching passages")
    case.wait_for("Reading the files to find passages by meaning… 0 %")
    case.hand.qtbot.waitUntil(lambda: len(case.fake.read) == 1)
    if way == "Esc":
        case.hand.press(Qt.Key.Key_Escape)
    elif way == "Stop":
        case.hand.click("Stop", case.controller.offers)
    elif way == "dismissed":
        case.controller.offers.dismiss.click()
    else:
        here = case.hand.session.conversation
        case.hand.session.new_conversation()
    assert not case.controller.offers.isVisible()
    case.hand.qtbot.waitUntil(lambda: case.fake.closed == 1)
    if way == "another chat":
        case.hand.session.open_conversation(here)
    assert case.held == before
    assert not case.controller.offers.isVisible()
    case.hand.box.setFocus()
    case.hand.press(Qt.Key.Key_Return)
    case.hand.qtbot.waitUntil(lambda: len(case.hand.items()) == 2)
    case.hand.wait_for("idle")


def test_a_model_that_cannot_be_loaded_leaves_the_words(case: Case) -> None:
    case.fake.error = NotEnoughMemory("It needs 2 GB, but 1 GB is free.")
    case.trim()
    case.hand.type(" The one on line 3500?")
    case.hand.press(Qt.Key.Key_Return)
    case.wait_for("too long")
    case.hand.click("Trim to fit")
    case.wait_for("trimmed to fit")
    case.hand.click("Use matching passages")
    case.wait_for("match your words best")
    assert "line 3500 " in case.held.text
    shown = case.hand.window.chat.banner
    assert shown.isVisible()


def test_without_an_embedding_model_one_is_offered_unless_words_were_chosen(case: Case) -> None:
    models, writing = case.hand.desktop.services.local_models, case.hand.desktop.services.composer
    case.hand.qtbot.waitUntil(lambda: not models.searching)
    case.model.unlink()
    models.refresh((), ())
    case.hand.qtbot.waitUntil(lambda: not models.searching)
    case.trim()
    case.hand.click("Use matching passages")
    case.wait_for("they are found by meaning, too")
    assert case.controller.offers.other.text() == "Get an embedding model"
    assert writing.fitting.meaning is not None
    writing.fitting.meaning.choose(WORDS_ONLY)
    case.hand.click("Use the beginnings")
    case.wait_for("trimmed to fit")
    case.hand.click("Use matching passages")
    case.wait_for("match your words best")
    assert "meaning" not in case.controller.offers.words.text()
    assert not case.controller.offers.other.isVisible()
    assert case.fake.opened == []


def test_the_preferences_choose_the_model(case: Case) -> None:
    controller, models = case.hand.window.preferences, case.hand.desktop.services.local_models
    controller.open()
    models.refresh((), ())
    chooser = controller.passages
    assert chooser is not None
    case.hand.qtbot.waitUntil(lambda: chooser.box.count() == 3)
    texts = [chooser.box.itemText(row) for row in range(3)]
    assert texts == ["Words and meaning (Embed)", "Words only", "Words and Embed"]
    assert chooser.box.currentIndex() == 0
    for row, choice in ((1, WORDS_ONLY), (2, str(case.model)), (0, "")):
        chooser.box.setCurrentIndex(row)
        chooser.box.activated.emit(row)
        assert case.hand.session.preferences.passage_model == choice
    case.model.unlink()
    models.refresh((), ())
    case.hand.qtbot.waitUntil(lambda: chooser.box.count() == 2)
    assert chooser.box.itemText(0) == "Words and meaning, once there is an embedding model"
