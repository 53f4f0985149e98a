"""Later questions about a long file, as the user sees it: passages for each go with its message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from desktop.items.chats.messages import MessageItem
from desktop.settings import Behaviour
from desktop.store.attachments.message_format import split
from desktop.store.attachments.whole_texts import WholeTextStore
from engine.hub.local.scan import FoundModel
from engine.settings import StopSettings
from tests.desktop.embedders import FakeEmbedder
from tests.desktop.fakes import EchoApi
from tests.desktop.hand import Hand, no_fetch

BOAT, CABIN = "A boat was painted green.", "The cabin smelled of tar."


class Case:
    """A window with a chat in which a long file was trimmed to the passages about a boat."""

    def __init__(self, qtbot, folder: Path) -> None:
        echo, self.fake = EchoApi(), FakeEmbedder()
        echo.chat.reply = "Yes."
        self.model = folder / "embed.gguf"

        def describe(path: Path):
            return replace(echo.describe(path), embedding=path.name == self.model.name)

        def find(folders, stop) -> Iterator[FoundModel]:
            if self.model.exists():
                yield FoundModel(self.model, "Embed", "")

        api = EngineApi(
            echo.open_chat, describe, no_fetch, echo.draft_problem, find, open_embedder=self.fake.open
        )
        (folder / "data").mkdir()
        self.echo, self.hand = echo, Hand(qtbot, folder / "data", echo, api=api)
        lines = [f"line {number} has five words" for number in range(6000)]
        lines[3000], lines[5000] = BOAT, CABIN
        (folder / "book.txt").write_text("\n".join(lines))
        self.hand.load()
        self.folder, self.qtbot = folder, qtbot

    def trim(self, *, by_match: bool = True) -> None:
        """Ask the first question, and send it with what is left of the file."""
        hand = self.hand
        controller = hand.window.composer_controller
        hand.window.files.open([self.folder / "book.txt"])
        self.qtbot.waitUntil(lambda: len(controller.files.held()) == 1)
        hand.type("Was a boat painted?")
        hand.press(Qt.Key.Key_Return)
        self.wait_for("too long")
        hand.click("Trim to fit")
        self.wait_for("trimmed to fit")
        if by_match:
            hand.click("Use matching passages")
            self.wait_for("match your words best" if not self.model.exists() else "words and meaning")
        hand.box.setFocus()
        hand.press(Qt.Key.Key_Return)
        self.qtbot.waitUntil(lambda: len(hand.items()) == 2)
        hand.wait_for("idle")

    def wait_for(self, words: str) -> None:
        offers = self.hand.window.composer_controller.offers
        self.qtbot.waitUntil(lambda: offers.isVisible() and words in offers.words.text())

    def ask(self, question: str) -> MessageItem:
        """Ask a later question; returns its message when the reply is complete."""
        count = len(self.hand.items())
        self.hand.type(question)
        self.hand.press(Qt.Key.Key_Return)
        self.qtbot.waitUntil(lambda: len(self.hand.items()) == count + 2)
        self.hand.wait_for("idle")
        self.qtbot.waitUntil(lambda: not self.hand.session.replying_in)
        return self.hand.items()[count]


@pytest.fixture
def case(qtbot, tmp_path: Path) -> Iterator[Case]:
    made = Case(qtbot, tmp_path)
    yield made
    made.hand.close()


def test_each_question_gets_new_passages_and_earlier_messages_stay(case: Case) -> None:
    case.trim()
    first = case.hand.items()[0]
    assert BOAT in first.text
    assert CABIN not in first.text
    before = case.echo.chat.requests[-1].messages
    asked = case.ask("What did the cabin smell of?")
    assert CABIN in asked.text
    ((_place, file),) = split(asked.text)[0]
    assert file.name == "book.txt"
    assert file.note.endswith(" passages")
    assert case.hand.items()[0] == first
    messages = case.echo.chat.requests[-1].messages
    assert messages[: len(before)] == before
    # what the model reads already is not sent again
    again = case.ask("So the cabin and the boat?")
    assert (CABIN in again.text, BOAT in again.text) == (False, False)
    assert case.ask("Thanks!").text == "Thanks!"


def test_after_a_restart_it_is_found_in_the_store(case: Case) -> None:
    case.trim(by_match=False)
    case.qtbot.waitUntil(lambda: WholeTextStore(case.hand.session.stores.database).total() > 0)
    (case.folder / "book.txt").unlink()
    case.hand.restart()
    case.hand.wait_for("idle")
    assert CABIN in case.ask("What did the cabin smell of?").text


def test_the_preferences_turn_it_off(case: Case) -> None:
    case.trim()
    session = case.hand.session
    session.set_settings(replace(session.settings(Behaviour), follow_ups=False))
    question = "What did the cabin smell of?"
    assert case.ask(question).text == question


def test_where_they_do_not_fit_the_question_goes_without(case: Case) -> None:
    case.trim(by_match=False)  # the beginning fills the context
    session = case.hand.session
    session.set_settings(replace(session.settings(StopSettings), when_full="stop"))
    question = "Cabin?"
    assert case.ask(question).text == question
    assert not case.hand.window.composer_controller.files.held()


def test_a_question_that_changes_while_they_are_searched_is_not_sent(case: Case) -> None:
    case.trim()
    hand, writing = case.hand, case.hand.desktop.services.composer
    hand.type("What did the cabin smell of")
    hand.press(Qt.Key.Key_Return)
    QTest.keyClicks(hand.box, "?")
    with case.qtbot.waitSignal(writing.follow_ups.ready):
        hand.press(Qt.Key.Key_Return)
    case.qtbot.waitUntil(lambda: len(hand.items()) == 4)
    hand.wait_for("idle")
    assert hand.items()[2].text.endswith("What did the cabin smell of?")
    assert hand.items()[2].text.count(CABIN) == 1


def test_known_meanings_are_used_and_no_file_is_read_again(case: Case) -> None:
    case.model.write_bytes(b"weights")
    case.trim()
    read = [role for role, _text in case.fake.read]
    assert BOAT in case.hand.items()[0].text
    asked = case.ask("What did the vessel look like?")
    assert [role for role, _text in case.fake.read] == [*read, "query"]
    assert case.fake.closed == len(case.fake.opened)
    assert asked.text.endswith("What did the vessel look like?")
    assert len(split(asked.text)[0]) == 1
