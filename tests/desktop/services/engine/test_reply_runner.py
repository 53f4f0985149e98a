"""What becomes of a reply's events: shown, saved into its message, told at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessagesModel
from desktop.services.engine.reply_record import LABEL
from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.engine.token_cache import STRETCH, WRITTEN
from desktop.services.session.leading_name import LeadingName
from desktop.store.conversations.conversations import ConversationStore, StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import UNKNOWN
from desktop.store.database.database import Database, StoreError
from engine.core import (
    ChatRequest,
    Done,
    Loading,
    Prefill,
    Rendered,
    Running,
    Stats,
    Text,
    TokenInfo,
    Trimmed,
)
from engine.settings import ConstraintSettings
from tests.desktop.fakes import ECHO_INFO

STATS = Stats(new_tokens=2)


def word(text: str, id: int = 5) -> Text:
    return Text(text, (TokenInfo(id, text, 0.5, 0.5),))


class Desk:
    """A runner over a store in memory, whose engine's events come from the test. A job is its message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores = ConversationStores(Database(Path(":memory:")))
        self.store, self.messages = self.stores.kept, MessagesModel()
        unused: Any = None
        self.parent = QObject()
        self.runner = ReplyRunner(self.stores, self.messages, unused, unused, self.parent)
        monkeypatch.setattr(self.runner.engine, "message_of", lambda job: job)
        self.chat = self.store.create().id
        self.heard: list[tuple[Any, ...]] = []
        for name in ("begun", "rendered", "document_grown", "changed", "ran", "avoided", "draft_failed",
                     "ended", "trouble", "saved_again", "engine_failed"):  # fmt: skip
            getattr(self.runner, name).connect(lambda *values, name=name: self.heard.append((name, *values)))

    def told(self, name: str) -> list[tuple[Any, ...]]:
        return [values for found, *values in self.heard if found == name]

    def begin(self, text: str = "", request: ChatRequest | None = None, **more: Any) -> int:
        message = self.store.add_message(self.chat, None, "assistant", text, "running")
        self.runner.begin(request or ChatRequest(()), message, **more)
        self.messages.append(self.runner.item(message))
        return message.id

    def send(self, message: int, *events: Any) -> None:
        for event in events:
            self.runner.engine.yielded.emit(message, event)

    def end(self, message: int, sentence: str = "", details: str = "", by: str = "") -> StoredMessage:
        self.runner.end(message, sentence, details, by)
        return self.store.message(message)


@pytest.fixture
def desk(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(monkeypatch)
    yield made
    assert made.runner.close()
    made.stores.database.close()


def test_a_whole_reply(desk: Desk) -> None:
    number = desk.begin()
    ((message, request, known),) = desk.told("begun")
    assert (message, request.report_prompt, known) == (number, True, 0)
    desk.send(number, word("Good "), word("day", 6), Done("stop_token", "</s>", STATS))
    assert desk.messages.item(number).text == "Good day"
    assert desk.store.message(number).state == "running"
    saved = desk.end(number)
    assert (saved.text, saved.state) == ("Good day", "complete")
    assert (saved.stats["reason"], saved.stats["trigger"], saved.stats["stats"]["new_tokens"]) == (
        "stop_token", "</s>", 2,
    )  # fmt: skip
    trace = desk.runner.tokens(number)
    assert trace is not None
    assert list(trace.ids) == [5, 6]
    assert desk.told("ended") == [[desk.chat, number, False]]
    assert desk.runner.growing(number) is None
    assert not desk.told("engine_failed")


def test_replies_of_two_chats_at_once(desk: Desk) -> None:
    first, chat = desk.begin(), desk.chat
    desk.chat = desk.store.create().id
    second, third = desk.begin(), desk.begin()
    assert desk.runner.conversations == (chat, desk.chat)
    assert [each.message_id for each in desk.runner.growing_in(desk.chat)] == [second, third]
    desk.send(second, word("a"))
    desk.send(first, word("b"))
    desk.send(99, word("of none"))
    assert [desk.messages.item(each).text for each in (first, second, third)] == ["b", "a", ""]


def test_what_the_reader_is_told_while_it_runs(desk: Desk) -> None:
    number = desk.begin()
    prompt = Rendered("Hi", (1, 2))
    desk.send(number, prompt, Trimmed(3), dataclasses.replace(word(""), suppressed="bad"), Running(STATS))
    assert desk.told("rendered") == [[number, prompt]]
    assert desk.told("avoided") == [[number, 1, "bad"]]
    assert desk.told("changed") == [[number], [number]]
    assert desk.told("ran") == [[number, STATS]]
    item = desk.runner.item(desk.store.message(number))
    assert item.running
    assert "3 oldest messages" in item.notice
    assert "1 banned phrase" in item.footer
    desk.send(number, dataclasses.replace(word(""), suppressed="worse"), Done("stop_token", "", STATS))
    assert desk.told("avoided")[1] == [number, 2, "worse"]
    saved = desk.end(number).stats
    assert (saved["trimmed"], saved["avoided"], "trimmed_tokens" in saved) == (3, 2, False)


def test_tokens_that_a_document_lacks_are_noted(desk: Desk) -> None:
    number = desk.begin()
    desk.send(number, Trimmed(0, 40), word("a"), Done("max_tokens", "", STATS))
    assert "40 tokens of the document" in desk.runner.item(desk.store.message(number)).notice
    assert desk.end(number).stats["trimmed_tokens"] == 40


@pytest.mark.parametrize(
    ("done", "sentence", "by", "state", "noted"),
    [
        ("stop_token", "", "", "complete", None), ("stop_token", "", "user", "complete", None),
        ("cancelled", "", "user", "stopped", None), ("cancelled", "", "load", "stopped", "load"),
        (None, "", "user", "stopped", None), (None, "", "close", "stopped", "close"),
        (None, "It broke.", "", "failed", None), ("cancelled", "It broke.", "load", "failed", None),
    ],
)  # fmt: skip
def test_how_it_ended(
    desk: Desk, done: str | None, sentence: str, by: str, state: str, noted: str | None
) -> None:
    number = desk.begin()
    desk.send(number, word("a"))
    if done is not None:
        desk.send(number, Done(done, "", STATS))
    saved = desk.end(number, sentence, by=by)
    assert (saved.text, saved.state, saved.stats.get("stopped_by")) == ("a", state, noted)
    assert saved.stats.get("error", "") == sentence
    assert desk.told("ended") == [[desk.chat, number, bool(by)]]
    desk.runner.end(number, "", "", "")
    assert len(desk.told("ended")) == 1


def test_a_reply_whose_device_is_lost_has_its_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ("The GPU was lost.", "report")
    monkeypatch.setattr(type(desk.runner.engine), "lost", property(lambda self: lost))
    first, second = desk.begin(), desk.begin()
    assert desk.end(first).stats["error"] == "The GPU was lost."
    assert desk.told("engine_failed") == [["The GPU was lost.", "report"]]
    assert "error" not in desk.end(second, by="user").stats


def test_who_hears_of_a_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft model's sentence is the chat's, a bug or a broken device the engine's, others stay below the
    message.
    """
    draft, plain, late, bug, broken = (desk.begin() for _unused in range(5))
    loading = Loading("Draft model", 1, 2, of_draft=True)
    desk.send(draft, loading)
    desk.end(draft, "No draft.")
    assert desk.told("draft_failed") == [[desk.chat, "No draft."]]
    desk.send(plain, Loading("Model", 1, 2))
    desk.end(plain, "Too long.")
    desk.send(late, loading, Prefill(1, 2, 0))
    desk.end(late, "Too long.")
    assert (len(desk.told("draft_failed")), desk.told("engine_failed")) == (1, [])
    desk.send(bug, loading)
    desk.end(bug, "A bug.", "trace")
    assert desk.told("engine_failed") == [["A bug.", "trace"]]
    monkeypatch.setattr(type(desk.runner.engine), "needs_reload", property(lambda self: True))
    desk.end(broken, "Broken.")
    assert desk.told("engine_failed")[1:] == [["Broken.", ""]]
    assert len(desk.told("draft_failed")) == 1


def test_a_thought_that_the_prompt_opens(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataclasses.replace(
        ECHO_INFO, thinking=(("<think>", "</think>"),), opens_thought="</think>",
    )  # fmt: skip
    monkeypatch.setattr(type(desk.runner.engine), "model", property(lambda self: info))
    number = desk.begin()
    assert desk.runner.item(desk.store.message(number)).opened == "</think>"
    assert desk.store.message(number).stats["opened"] == "</think>"  # after a crash, too
    desk.send(number, word("Hm."), Done("stop_token", "", STATS))
    saved = desk.end(number)
    assert (saved.stats["opened"], saved.stats["model"]) == ("</think>", "Echo")
    document = desk.begin(request=ChatRequest((), plain=True))
    assert "opened" not in desk.end(document, by="user").stats
    for source, opened in (
        (None, "</think>"),
        (dataclasses.replace(saved, stats={"opened": "</x>"}), "</x>"),
    ):
        again = desk.begin("Hm.", source=source)
        assert desk.end(again, by="user").stats["opened"] == opened


def test_a_reply_of_json_is_json_also_after_a_crash(desk: Desk) -> None:
    number = desk.begin(request=ChatRequest((), constraint=ConstraintSettings(format="json")))
    assert desk.store.message(number).stats == {"language": "json"}  # what a killed process leaves
    desk.send(number, word("{"))
    assert desk.end(number, by="user").stats["language"] == "json"


def test_the_authors_name_is_left_out(desk: Desk) -> None:
    number = desk.begin(leading=LeadingName(("Ann",)))
    desk.send(number, word("Ann"), word(": Hello"), Done("stop_token", "", STATS))
    assert desk.messages.item(number).text == "Hello"
    assert desk.end(number).text == "Hello"
    other = desk.begin(leading=LeadingName(("Ann",)))
    desk.send(other, word("An"))
    assert desk.messages.item(other).text == ""
    assert desk.end(other, by="user").text == "An"
    assert desk.messages.item(other).text == "An"


def test_a_label_is_kept(desk: Desk) -> None:
    number = desk.begin()
    reply = desk.runner.growing(number)
    assert reply is not None
    reply.label = "hot"
    assert desk.end(number, by="user").stats[LABEL] == "hot"


def test_a_document_is_written_in_its_middle(desk: Desk) -> None:
    source = desk.store.add_message(desk.chat, None, "assistant", "one  three")
    message = desk.store.add_message(desk.chat, None, "assistant", "one ", "running")
    plain = ChatRequest((), plain=True)
    desk.runner.begin(plain, message, dataclasses.replace(message, id=source.id), tail=" three")
    number = message.id
    desk.send(number, word("t"), word("wo"), Done("stop_string", "x", STATS))
    assert desk.told("document_grown") == [[number, "t"], [number, "wo"]]
    saved = desk.end(number)
    assert saved.text == "one two three"
    assert (saved.stats[STRETCH], saved.stats[WRITTEN]) == ([4, 7], 2)
    trace = desk.runner.tokens(number)
    assert trace is not None
    assert (trace.text, list(trace.ids)) == ("one two three", [UNKNOWN, 5, UNKNOWN, UNKNOWN])


@pytest.mark.parametrize(
    ("reason", "text", "last"),
    [("stop_token", "a", 5), ("stop_token", "\ufffd", UNKNOWN), ("stop_regex", "a", UNKNOWN)],
)
def test_the_last_token_of_a_document_counts_unless_it_was_cut(
    desk: Desk, reason: str, text: str, last: int
) -> None:
    number = desk.begin(request=ChatRequest((), plain=True))
    desk.send(number, word(text), Done(reason, "", STATS))
    desk.end(number)
    trace = desk.runner.tokens(number)
    assert trace is not None
    assert list(trace.ids) == [last]


def test_text_is_on_the_disk_before_the_end(desk: Desk, qtbot: QtBot) -> None:
    number = desk.begin("Well, ")
    desk.send(number, word("yes"))
    qtbot.waitUntil(lambda: desk.store.message(number).text == "Well, yes")
    assert desk.store.message(number).state == "running"


def test_a_full_disk_loses_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, growing = desk.begin(), desk.begin()

    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        for name in ("finish", "checkpoint"):
            patch.setattr(ConversationStore, name, fail)
        desk.send(ended, word("one"), Done("stop_token", "", STATS))
        desk.send(growing, word("two"))
        desk.runner.end(ended, "", "", "")
        assert desk.told("trouble") == [["The disk is full.", ""]]
        item = desk.runner.item(desk.store.message(ended))
        assert (item.text, item.running) == ("one", False)
        trace = desk.runner.tokens(ended)
        assert trace is not None
        assert trace.text == "one"
        assert desk.runner.save_replies() == {ended: "one", growing: "two"}
    assert desk.runner.save_replies() == {}
    assert desk.store.message(ended).text == "one"
    assert desk.told("saved_again") == [[]]


def test_closing_saves_what_runs(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)
    number = desk.begin()
    desk.send(number, word("so far"))
    assert desk.runner.close()
    saved = desk.store.message(number)
    assert (saved.text, saved.state, saved.stats["stopped_by"]) == ("so far", "stopped", "close")
    desk.stores.database.close()


@pytest.mark.parametrize(
    ("constraint", "language"),
    [
        (ConstraintSettings(format="json"), "json"),
        (ConstraintSettings(format="json_schema", pattern="{}"), "json"),
        (ConstraintSettings(format="json", begin_with='{"a"'), "json"),
        (ConstraintSettings(format="regex", pattern="a"), ""),
        (ConstraintSettings(), ""),
    ],
)
def test_a_reply_that_has_to_be_json_is_code(
    desk: Desk, constraint: ConstraintSettings, language: str
) -> None:
    number = desk.begin(request=ChatRequest((), constraint=constraint))
    assert desk.messages.item(number).language == language
    desk.send(number, word("[1]"), Done("constraint", "", STATS))
    saved = desk.end(number)
    assert saved.stats.get("language", "") == language
    assert desk.runner.item(saved).language == language
    other = dataclasses.replace(saved, stats={**saved.stats, "language": "html"})  # of an imported file
    assert desk.runner.item(other).language == ""
