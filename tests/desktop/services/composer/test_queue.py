"""Queued messages: when each is sent, what holds them, and what is done with those that are too long."""

from __future__ import annotations

import threading

import pytest

from desktop.services.composer.queue import MessageQueue
from desktop.store.attachments.message_format import Attachment, join, split
from desktop.store.conversations.queue import QueueStore
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, PromptSize
from engine.errors import EngineError
from engine.settings import StopSettings
from tests.conftest import WAIT_MS
from tests.desktop.fakes import EchoChat
from tests.desktop.services.conftest import Harness


@pytest.fixture
def queue(talking: Harness) -> MessageQueue:
    return MessageQueue(talking.session, talking.session)


def begin(harness: Harness, text: str) -> threading.Event:
    """Send a message whose reply waits for the event; further replies do not wait."""
    gate = harness.chat.hold = threading.Event()
    before = len(harness.chat.requests)
    assert harness.session.submit(text), harness.notices()
    harness.qtbot.waitUntil(lambda: len(harness.chat.requests) > before)
    harness.chat.hold = None
    return gate


def waiting(harness: Harness, queue: MessageQueue) -> list[str]:
    return [each.text for each in queue.waiting(harness.session.conversation)]


def rest(harness: Harness) -> None:
    """Until no reply is left and no question about a queued message is open."""
    harness.qtbot.waitUntil(lambda: not harness.session.busy)
    harness.until_idle()


def test_messages_are_sent_one_after_the_other(talking: Harness, queue: MessageQueue) -> None:
    gate = begin(talking, "one")
    for text in ("\n  two \n\n", "three", "four"):
        assert queue.add(text)
    assert waiting(talking, queue) == ["  two", "three", "four"]
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 8)
    rest(talking)
    assert talking.texts()[::2] == ["one", "  two", "three", "four"]
    assert waiting(talking, queue) == []
    assert talking.said["notice"] == []


def test_the_reply_to_a_queued_message_begins_as_asked(talking: Harness, queue: MessageQueue) -> None:
    gate = begin(talking, "one")
    assert queue.add("two", "Well,")
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)
    assert talking.texts()[3].startswith("Well,")


def test_a_message_written_after_the_stop_is_sent(talking: Harness, queue: MessageQueue) -> None:
    begin(talking, "one")
    talking.session.stop()
    assert talking.session.state == "stopping"
    assert queue.add("two")
    talking.qtbot.waitUntil(lambda: talking.texts()[2:] == ["two", "two"])
    rest(talking)
    assert not queue.is_held(talking.session.conversation)
    begin(talking, "three")
    assert queue.add("four")
    talking.session.stop()  # the next stop holds the queue again
    rest(talking)
    assert queue.is_held(talking.session.conversation)
    assert waiting(talking, queue) == ["four"]


def test_a_reply_that_failed_holds_the_queue_until_one_is_complete(
    talking: Harness, queue: MessageQueue
) -> None:
    session = talking.session
    gate, talking.chat.error = begin(talking, "one"), EngineError("The pass failed.")
    assert queue.add("two")
    shown: list[bool] = []
    queue.changed.connect(lambda: shown.append(queue.is_held(session.conversation)))
    gate.set()
    rest(talking)
    assert queue.is_held(session.conversation)
    assert shown[-1], "the list above the message box was told of it"
    assert waiting(talking, queue) == ["two"]
    talking.chat.error = None
    assert session.submit("three")
    talking.qtbot.waitUntil(lambda: talking.texts()[-1] == "two")
    rest(talking)
    assert talking.texts()[2:] == ["three", "three", "two", "two"]
    assert not queue.is_held(session.conversation)


def test_what_the_last_start_left_waits_for_the_user(talking: Harness) -> None:
    session = talking.session
    talking.ask("one")
    store = QueueStore(talking.stores)
    first, _ = (store.add(session.conversation, text, "") for text in ("two", "three"))
    queue = MessageQueue(session, session)
    assert queue.is_held(session.conversation)
    other = begin(talking, "elsewhere") if session.new_conversation() else None
    assert other is not None
    other.set()
    rest(talking)
    assert session.open_conversation(queue.waiting(1)[0].conversation_id)
    assert waiting(talking, queue) == ["two", "three"]
    queue.send(first)
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 6)
    rest(talking)
    assert talking.texts()[2::2] == ["two", "three"]


def test_a_message_that_is_sent_while_a_reply_is_written_waits_on(
    talking: Harness, queue: MessageQueue
) -> None:
    gate = begin(talking, "one")
    assert queue.add("two")
    queue.send(queue.waiting(talking.session.conversation)[0].id)
    assert waiting(talking, queue) == ["two"]
    assert len(talking.notices()) == 1
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)


def test_messages_are_removed_once_and_not_sent(talking: Harness, queue: MessageQueue) -> None:
    gate = begin(talking, "one")
    for text in ("two", "three"):
        assert queue.add(text, "Well,")
    changes: list[int] = []
    queue.changed.connect(lambda: changes.append(1))
    first = queue.waiting(talking.session.conversation)[0]
    assert queue.remove(first.id) == first
    assert len(changes) == 1
    assert queue.remove(first.id) is None
    queue.send(first.id)
    assert waiting(talking, queue) == ["three"]
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)
    assert talking.texts()[2] == "three"


def test_a_store_that_fails_is_told_of_and_nothing_is_lost(
    talking: Harness, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = begin(talking, "one")
    assert queue.add("two")

    def fail(*_what: object) -> int:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(QueueStore, "add", fail)
        patch.setattr(QueueStore, "remove", fail)
        assert not queue.add("three")
        assert queue.remove(queue.waiting(talking.session.conversation)[0].id) is None
    assert talking.said["notice"] == [("The disk is full.", "error")] * 2
    assert waiting(talking, queue) == ["two"]
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)


def test_a_held_queue_is_held_in_the_chat_it_moves_to(talking: Harness, queue: MessageQueue) -> None:
    session = talking.session
    begin(talking, "one")
    assert queue.add("two")
    session.stop()
    rest(talking)
    before = session.conversation
    assert session.new_conversation()
    talking.ask("other")
    queue.move(before, session.conversation)
    assert queue.is_held(session.conversation)
    assert not queue.is_held(before)
    assert (queue.waiting(before), waiting(talking, queue)) == ([], ["two"])


def lines(count: int) -> str:
    """A message with a file of so many lines of five words."""
    text = "\n".join(f"line {number} has five words" for number in range(count))
    return join([Attachment("long.txt", text)], "Sum it up")


def test_a_file_that_no_longer_fits_is_trimmed(talking: Harness, queue: MessageQueue) -> None:
    gate = begin(talking, "one")
    assert queue.add(lines(900))
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)
    ((_, file),), place = split(talking.texts()[2])
    assert "of 900 lines" in file.note
    assert talking.texts()[2][place:] == "Sum it up"
    assert 4096 - 16 - 8 < len(talking.texts()[2].split()) + 2 <= 4096 - 16
    assert talking.said["notice"] == [
        ("The files of the queued message were trimmed so that it fits.", "info")
    ]


def test_a_file_that_fits_is_sent_whole(talking: Harness, queue: MessageQueue) -> None:
    gate = begin(talking, "one")
    assert queue.add(lines(400))
    gate.set()
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 4)
    rest(talking)
    assert talking.texts()[2] == lines(400)
    assert talking.said["notice"] == []


def test_a_text_that_is_too_long_is_held_and_the_user_may_take_the_replys_space(
    talking: Harness, queue: MessageQueue
) -> None:
    session = talking.session
    gate = begin(talking, "one")
    assert queue.add("word " * 4089 + "end")  # leaves the reply 6 tokens, not 16
    assert queue.add("three")
    gate.set()
    talking.qtbot.waitUntil(lambda: talking.said["notice"] != [])
    sentence = "The queued message is 10 tokens too long for the context. Shorten it, or send it anyway."
    assert talking.said["notice"] == [(sentence, "warning")]
    assert queue.is_held(session.conversation)
    assert len(waiting(talking, queue)) == 2
    queue.send(queue.waiting(session.conversation)[0].id)
    talking.qtbot.waitUntil(lambda: len(talking.texts()) > 3)
    rest(talking)
    assert talking.texts()[2].endswith("word end")


@pytest.mark.parametrize("way", ["removed", "another reply"])
def test_what_happens_while_a_message_is_counted(
    talking: Harness, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    session, counted, size = talking.session, threading.Event(), EchoChat.size

    def slow(chat: EchoChat, request: ChatRequest) -> PromptSize:
        assert counted.wait(WAIT_MS / 1000)
        return size(chat, request)

    monkeypatch.setattr(EchoChat, "size", slow)
    gate = begin(talking, "one")
    assert queue.add("word " * 1000)
    assert queue.add("last")
    gate.set()
    talking.qtbot.waitUntil(lambda: session.state == "idle")
    if way == "removed":
        queue.remove(queue.waiting(session.conversation)[0].id)
    else:
        assert session.submit("two")
    assert len(talking.texts()) == (2 if way == "removed" else 4)
    counted.set()
    talking.qtbot.waitUntil(lambda: talking.texts()[-1] == "last")
    rest(talking)
    sent = [text.split()[0] for text in talking.texts()[2::2]]
    assert sent == (["last"] if way == "removed" else ["two", "word", "last"])


def test_a_short_message_is_counted_where_a_full_chat_does_not_drop_turns(
    talking: Harness, queue: MessageQueue
) -> None:
    session = talking.session
    session.set_settings(StopSettings(when_full="stop"))
    talking.chat.reply = "word " * 2000
    for text in ("one", "two"):
        talking.ask(text)
    talking.chat.reply = None
    gate = begin(talking, "three")
    assert queue.add("word " * 95)
    gate.set()
    talking.qtbot.waitUntil(lambda: talking.said["notice"] != [])
    sentence = "The queued message is 3 tokens too long for the context. Shorten it."  # 4099 of 4096
    assert talking.notices() == [sentence]
    assert len(waiting(talking, queue)) == 1


def test_a_message_that_is_refused_waits_for_the_user(
    talking: Harness, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, tried = begin(talking, "one"), list[str]()

    def refuse(text: str, *_more: object, **_options: object) -> bool:
        tried.append(text)
        return False

    assert queue.add("two")
    monkeypatch.setattr(talking.session, "submit", refuse)
    gate.set()
    talking.qtbot.waitUntil(lambda: queue.is_held(talking.session.conversation))
    rest(talking)
    assert (tried, waiting(talking, queue)) == (["two"], ["two"])


def test_a_message_that_is_too_long_holds_up_no_other_chat(talking: Harness, queue: MessageQueue) -> None:
    session = talking.session
    session.set_settings(StopSettings(when_full="stop"))
    talking.chat.reply = "word " * 2000
    for text in ("one", "two"):
        talking.ask(text)
    talking.chat.reply = None
    first, gate = session.conversation, begin(talking, "three")
    assert queue.add("word " * 95)  # short, but for this chat it is too long
    assert session.new_conversation()
    session.set_settings(StopSettings())
    other = begin(talking, "four")
    assert queue.add("five")
    shown: list[bool] = []
    queue.changed.connect(lambda: shown.append(queue.is_held(first)))
    gate.set()
    other.set()
    talking.qtbot.waitUntil(lambda: talking.texts()[2:] == ["five", "five"])
    talking.qtbot.waitUntil(lambda: queue.is_held(first))
    rest(talking)
    assert shown[-1]
    assert [sentence[:32] for sentence in talking.notices()] == ["The queued message is 3 tokens t"]
    assert len(queue.waiting(first)) == 1
