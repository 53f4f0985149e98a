"""Later questions about a long file, as the user sees it: passages for each go with its message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPlainTextEdit

from desktop.app import EngineApi
from desktop.items.chats.messages import MessageItem
from desktop.services.composer import passage_search
from desktop.services.composer.small_talk import SENTENCES
from desktop.settings import Behaviour
from desktop.store.attachments.message_format import passages_in, split
from desktop.store.attachments.whole_texts import WholeTextStore
from desktop.views.transcript.row_widgets.editor import EditorRow
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


def edited(case: Case, message: MessageItem, question: str) -> MessageItem:
    """Edit a message, and wait for the reply; returns its new version."""
    transcript, count = case.hand.window.chat.transcript, len(case.hand.items())
    place = [item.id for item in case.hand.items()].index(message.id)
    transcript.begin_edit(message.id)
    [box] = [each.box for each in transcript.pool.widgets() if isinstance(each, EditorRow)]
    box.setPlainText(question)
    QTest.keyClick(box, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    case.qtbot.waitUntil(lambda: case.hand.items()[place].id != message.id)
    case.qtbot.waitUntil(lambda: len(case.hand.items()) == place + 2 <= count)
    case.hand.wait_for("idle")
    case.qtbot.waitUntil(lambda: not case.hand.session.replying_in)
    return case.hand.items()[place]


def test_an_edited_question_gets_its_own_passages(case: Case) -> None:
    case.trim()
    asked = case.ask("What did the cabin smell of?")
    assert CABIN in asked.text
    # what is neither in the new question nor read before goes
    other = edited(case, asked, "What is on line 4444?")
    assert (CABIN in other.text, "line 4444 has five words" in other.text) == (False, True)
    assert other.text.count("book.txt") == 1
    thanks = edited(case, other, "Thanks!")
    assert thanks.text == "Thanks!"
    again = edited(case, thanks, "So what did the cabin smell of?")
    assert CABIN in again.text
    # a version of the same words stays as it is
    same = edited(case, again, "So what did the cabin smell of?")
    assert same.text == again.text


def test_the_first_question_keeps_as_many_passages_of_its_file(case: Case) -> None:
    case.trim()
    first = case.hand.items()[0]
    ((_place, file),) = split(first.text)[0]
    assert BOAT in file.text
    ((_place, other),) = split(edited(case, first, "What did the cabin smell of?").text)[0]
    assert (BOAT in other.text, CABIN in other.text, other.name) == (False, True, file.name)
    assert 0 < passages_in(other.note) <= passages_in(file.note)
    # where no passage has these words, the earlier ones stay
    ((_place, kept),) = split(edited(case, case.hand.items()[0], "Xylophones?").text)[0]
    assert kept == other


def test_an_edit_that_is_cancelled_while_passages_are_searched_changes_nothing(case: Case) -> None:
    case.trim()
    first, transcript = case.hand.items()[0], case.hand.window.chat.transcript
    transcript.begin_edit(first.id)
    with case.qtbot.waitSignal(case.hand.desktop.services.composer.follow_ups.edited):
        transcript.inline_edit.save(first.id, first.text.replace("a boat", "the cabin"), True)
        assert case.hand.items()[0] == first
        transcript.cancel_edit(first.id)
    assert case.hand.items()[0] == first


def test_an_edit_that_goes_on_while_passages_are_searched_is_not_saved(case: Case) -> None:
    """Nor is one that was cancelled, though the message is edited again."""
    case.trim()
    first, transcript = case.hand.items()[0], case.hand.window.chat.transcript
    follow_ups = case.hand.desktop.services.composer.follow_ups

    def box() -> QPlainTextEdit:
        [found] = [each.box for each in transcript.pool.widgets() if isinstance(each, EditorRow)]
        return found

    def save() -> None:
        QTest.keyClick(box(), Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)

    transcript.begin_edit(first.id)
    box().setPlainText("What did the cabin smell of?")
    with case.qtbot.waitSignal(follow_ups.edited):
        save()
        box().insertPlainText("Tell me: ")
    assert (case.hand.items()[0], box().toPlainText()) == (first, "Tell me: What did the cabin smell of?")
    with case.qtbot.waitSignal(follow_ups.edited):
        save()
        transcript.cancel_edit(first.id)
        transcript.begin_edit(first.id)
    assert (case.hand.items()[0], box().toPlainText()) == (first, "Was a boat painted?")
    assert CABIN in edited(case, first, "What did the cabin smell of?").text


def test_while_a_question_waits_for_its_passages_the_window_says_so(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And lets the user skip them, whether it is a new or an edited one."""
    case.trim()
    go, read = threading.Event(), passage_search.files_of
    monkeypatch.setattr(passage_search, "files_of", lambda *of: read(*of) if go.wait(30) else ())
    hand, transcript = case.hand, case.hand.window.chat.transcript
    offers = hand.window.composer_controller.offers
    first = hand.items()[0]

    def edit(question: str) -> None:
        transcript.begin_edit(first.id)
        [box] = [each.box for each in transcript.pool.widgets() if isinstance(each, EditorRow)]
        box.setPlainText(question)
        QTest.keyClick(box, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
        case.wait_for("Finding the passages")

    edit("Xylophones?")
    transcript.cancel_edit(first.id)
    assert not offers.isVisible()
    with case.qtbot.waitSignal(hand.desktop.services.composer.follow_ups.edited):
        go.set()
    go.clear()
    edit("What did the cabin smell of?")
    hand.click("Skip")
    case.qtbot.waitUntil(lambda: hand.items()[0].id != first.id)
    assert (BOAT in hand.items()[0].text, CABIN in hand.items()[0].text) == (True, False)
    assert not offers.isVisible()
    hand.wait_for("idle")
    hand.box.setFocus()
    hand.type("What did the cabin smell of?")
    hand.press(Qt.Key.Key_Return)
    case.wait_for("Finding the passages")
    count = len(hand.items())
    hand.click("Skip")
    case.qtbot.waitUntil(lambda: len(hand.items()) > count)
    assert CABIN not in hand.items()[count].text
    assert not offers.isVisible()
    go.set()
    hand.wait_for("idle")


def test_known_meanings_are_used_and_no_file_is_read_again(case: Case) -> None:
    case.model.write_bytes(b"weights")
    case.trim()
    read = [role for role, _text in case.fake.read]
    assert BOAT in case.hand.items()[0].text
    asked = case.ask("What did the vessel look like?")
    assert [role for role, _text in case.fake.read] == [*read, *["query"] * (1 + len(SENTENCES))]
    assert case.fake.closed == len(case.fake.opened)
    assert asked.text.endswith("What did the vessel look like?")
    assert len(split(asked.text)[0]) == 1


def test_small_talk_gets_no_passages_where_meanings_are_known(case: Case) -> None:
    """Its words, which the file has, would find some; what small talk is like is found out once."""
    case.model.write_bytes(b"weights")
    case.trim()
    assert case.ask("Thanks, that was five words!").text == "Thanks, that was five words!"
    before = len(case.fake.read)
    assert case.ask("What did the cabin smell of, and the boat?").text.count("book.txt") == 1
    assert len(case.fake.read) == before + 1
