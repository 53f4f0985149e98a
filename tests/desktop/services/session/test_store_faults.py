"""A StoreError at every call of the store: queued messages are kept, the open chat stays usable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from desktop.services.composer.queue import MessageQueue
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.path_cache import MOST
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import Database, StoreError
from engine.settings import SamplerSettings
from tests.desktop.services.conftest import Harness

FAULT = "The disk went away in the middle."


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, call: int, watch: Callable[[], None] = lambda: None
) -> Iterator[Callable[[], int]]:
    """Statement number `call` (from 1) raises; the function returns how many were executed. `watch` is called
    before each of them.
    """
    execute, count = Database.execute, 0

    def counted(self: Database, sql: str, values: Sequence[object] = ()) -> object:
        nonlocal count
        count += 1
        watch()
        if count == call:
            raise StoreError(FAULT)
        return execute(self, sql, values)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "execute", counted)
        yield lambda: count


def two_chats(harness: Harness) -> tuple[int, int]:
    """Two chats with a reply in each, the first one open."""
    harness.load()
    first = harness.session.conversation
    harness.ask("first question")
    harness.session.new_conversation()
    second = harness.session.conversation
    harness.ask("second question")
    harness.session.open_conversation(first)
    return first, second


def consistent(harness: Harness, shown: int) -> None:
    """The shown chat is the open one and can still be written in."""
    session = harness.session
    assert session.conversation == shown
    owners = {harness.store.message(item.id).conversation_id for item in session.messages.items()}
    assert owners <= {shown}
    harness.until_idle()
    text = f"still here {len(session.messages.items())}"
    assert session.submit(text), harness.notices()
    harness.until_idle()
    assert session.conversation == shown
    assert [item.text for item in session.messages.items()][-2] == text
    assert harness.saved() == harness.texts()


def is_over(queue: MessageQueue, number: int, chat: int) -> bool:
    """Whether a message was sent and answered, or waits for the user; reads nothing."""
    session = queue._session
    waits = number in [waiting.id for waiting in queue.waiting(chat)]
    return session.state == "idle" and not session.replying_in and (not waits or queue.is_held(chat))


@pytest.mark.parametrize(
    "cast", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "participants"]
)
def test_a_queued_message_at_every_call_of_the_store(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, cast: bool
) -> None:
    first, second = two_chats(harness)
    session = harness.session
    if cast:
        persona = PersonaStore(harness.database).save(Persona(0, "Ada", "", "You are Ada."))
        harness.store.set_persona(second, persona.id)
        harness.store.set_cast(
            second, Cast((Participant("Ada", "", persona.id), Participant("Bea")), (), "list", 0)
        )
    session.set_settings(SamplerSettings(temperature=0.25))
    queue = MessageQueue(session)
    call, outcomes = 0, Counter[str]()
    shown = session.messages

    def visible_chat_is_untouched() -> None:
        assert session.conversation == first
        assert session.messages is shown
        assert session.settings(SamplerSettings).temperature == 0.25
        assert not session.signalsBlocked()

    while True:
        call += 1
        text = f"waits {call}"
        number = queue._store.add(second, text, "")
        queue._read()
        for said in harness.said.values():
            said.clear()
        with failing(monkeypatch, call, visible_chat_is_untouched) as asked:
            queue.send(number)
            harness.qtbot.waitUntil(partial(is_over, queue, number, second))
        reached = asked() >= call
        assert session.save_replies() == {}
        waits = [waiting.text for waiting in queue.waiting(second)].count(text)
        said = [m.text for m in harness.store.path(second) if m.role == "user"].count(text)
        assert (waits, said) in ((1, 0), (0, 1)), (call, waits, said)
        outcomes["waits" if waits else "said"] += 1
        answered = (
            harness.store.path(second)[-1].text == text and harness.store.path(second)[-1].role == "assistant"
        )
        assert FAULT in harness.notices() or answered, call
        for signal in ("conversation_changed", "title_changed", "settings_changed", "stats_changed"):
            assert harness.said[signal] == [], (call, signal)
        visible_chat_is_untouched()
        consistent(harness, first)
        for waiting in tuple(queue.waiting(second)):
            queue.remove(waiting.id)
        queue._held.clear()
        assert all(message.state != "running" for message in harness.store.path(second)), call
        if not reached:
            break
    assert outcomes["waits"] > 5
    assert outcomes["said"] > 5
    assert queue._store.all() == ()


def test_opening_a_chat_at_every_call_of_the_store(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_chats(harness)
    others = [harness.store.create().id for _ in range(MOST)]
    call = 0
    while True:
        call += 1
        harness.session.open_conversation(first)
        for other in others:  # so that the second one has to be read
            harness.store.path(other)
        harness.said["notice"].clear()
        with failing(monkeypatch, call) as asked:
            opened = harness.session.open_conversation(second)
        shown = harness.session.conversation
        assert shown == second if opened else FAULT in harness.notices()
        consistent(harness, shown)
        if asked() < call:
            break
    assert call > 8


def test_sending_at_every_call_of_the_store(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: only the caller has the text. True: the chat has it."""
    first, _ = two_chats(harness)
    call = 0
    while True:
        call += 1
        text = f"question {call}"
        harness.said["notice"].clear()
        with failing(monkeypatch, call) as asked:
            sent = harness.session.submit(text)
        harness.until_idle()
        asked_for = [m.text for m in harness.store.path(first) if m.role == "user"]
        assert asked_for.count(text) == int(sent), call
        assert FAULT in harness.notices() or asked() < call
        consistent(harness, first)
        if asked() < call:
            break
    assert call > 10


def test_deleting_several_chats_at_every_call_of_the_store(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them or none; one undo restores them."""
    call = 0
    while True:
        call += 1
        ids = {harness.store.create(f"Talk {call}").id for _ in range(3)}
        harness.session.list_all()
        with failing(monkeypatch, call) as asked:
            deleted = harness.session.delete_conversations(ids)
        gone = {number for number in ids if harness.store.get(number).deleted}
        assert gone in (set(), ids)
        assert gone == ids or not deleted
        if gone:
            assert harness.session.undo()
            assert not any(harness.store.get(number).deleted for number in ids)
        if asked() < call:
            break


def test_keeping_a_temporary_chat_keeps_its_queue_at_every_call_of_the_store(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = MessageQueue(harness.session)
    call = 0
    while True:
        call += 1
        assert harness.session.new_temporary()
        before = harness.session.conversation
        texts = [f"{place} of {call}" for place in ("first", "second", "third")]
        for text in texts:
            queue._store.add(before, text, "Sure")
        queue._read()
        now = harness.store.create(f"Kept {call}").id
        harness.said["notice"].clear()
        with failing(monkeypatch, call) as asked:
            queue.move(before, now)
        queue._read()
        waiting = queue.waiting(now)
        assert sorted(each.text for each in waiting) == sorted(texts), call
        assert {each.opening for each in waiting} == {"Sure"}
        assert queue.waiting(before) == []
        assert FAULT in harness.notices() or asked() < call
        if asked() < call:
            break
    assert call > 3
