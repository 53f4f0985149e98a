"""The open chat: what is emitted when its place changes, and what would be asked next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import StoreError
from tests.desktop.services.conftest import Harness


@pytest.fixture
def emitted(talking: Harness) -> list[tuple[Any, ...]]:
    """What the session emits about the place of the open chat, in order."""
    found: list[tuple[Any, ...]] = []
    session = talking.session
    session.persona_changed.connect(lambda who: found.append(("persona", who and who.name)))
    session.prompt_changed.connect(lambda prompt: found.append(("prompt", prompt.text)))
    session.local_only_changed.connect(lambda on: found.append(("local", on)))
    session.cast_changed.connect(lambda: found.append(("cast",)))
    return found


def test_only_what_changed_is_emitted(talking: Harness, emitted: list[tuple[Any, ...]]) -> None:
    session, ada = talking.session, PersonaStore(talking.database).save(Persona(0, "Ada")).id
    changes: list[tuple[Callable[[], bool], list[tuple[Any, ...]]]] = [
        (lambda: session.choose_persona(ada), [("persona", "Ada")]),
        (lambda: session.choose_persona(ada), []),
        (lambda: session.set_local_only(True), [("local", True)]),
        (lambda: session.set_local_only(True), []),
        (lambda: session.set_system_prompt("Be brief."), [("prompt", "Be brief.")]),
        (lambda: session.follow_place(), []),
        (lambda: session.set_cast(Cast((Participant("Bea"),))), [("cast",)]),
        (lambda: session.choose_persona(None), [("persona", None)]),
    ]
    for change, expected in changes:
        emitted.clear()
        assert change() is True
        assert emitted == expected


def test_entering_a_chat_emits_its_place(talking: Harness, emitted: list[tuple[Any, ...]]) -> None:
    session = talking.session
    session.set_local_only(True)
    talking.ask("Hello")
    first = session.conversation
    emitted.clear()
    assert session.new_conversation()
    assert emitted == [("prompt", ""), ("local", False), ("cast",)]
    emitted.clear()
    session.open_conversation(first)
    assert emitted == [("prompt", ""), ("local", True), ("cast",)]


def test_only_temporary_chats_are_forgotten_when_they_are_left(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    first = session.conversation
    session.new_temporary()
    talking.ask("Psst")
    temporary, held = session.conversation, threading.Event()
    assert talking.preferences().last_conversation == first
    talking.chat.hold = held
    assert session.submit("more")
    session.open_conversation(first)
    assert talking.stores.temporary.path(temporary), "its reply is still written"
    held.set()
    talking.qtbot.waitUntil(lambda: not session.replying_in)
    assert not talking.stores.temporary.path(temporary)
    session.new_conversation()
    assert talking.store.path(first)


def test_what_would_be_asked_next(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    asked, answer = talking.ids()
    hidden = talking.store.add_message(session.conversation, answer, "hidden", "aside").id
    session.open_conversation(session.conversation)
    assert talking.ids() == [asked, answer, hidden]

    def next_messages(draft: str) -> tuple[list[tuple[str, str]], list[int]]:
        messages, ids = session.next_messages(draft)
        return [(message.role, message.content) for message in messages], ids

    said = [("user", "Hello"), ("assistant", "Hello"), ("user", "And?")]
    assert next_messages("And?") == (said, [asked, answer])
    session.set_system_prompt("Be brief.")
    assert next_messages("And?") == ([("system", "Be brief."), *said], [0, asked, answer])
    session.set_system_prompt(" \n")
    assert next_messages("And?") == (said, [asked, answer])
    session.set_cast(Cast((Participant("Bea", "A baker."), Participant("Cy"))))
    messages, ids = next_messages("And Cy?")
    assert len(ids) == len(messages) - 1
    assert ids[-2:] == [asked, answer]
    assert "And Cy?" in messages[-1][1]


def test_tokens_that_cannot_be_read_are_a_notice(talking: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    talking.ask("Hello")
    message = talking.ids()[1]
    assert talking.session.tokens(message) is not None

    def fails(*_: object) -> None:
        raise StoreError("The disk is gone.")

    monkeypatch.setattr(type(talking.session.replies), "tokens", fails)
    assert talking.session.tokens(message) is None
    assert talking.said["notice"][-1] == ("The disk is gone.", "error")


def test_figures_and_title_are_those_of_the_open_chat(talking: Harness) -> None:
    session = talking.session
    talking.ask("one two three four")
    assert talking.said["title_changed"][-1] == ("one two three four",)
    talking.ask("five")
    first = session.conversation
    stats = [message.stats["stats"] for message in talking.store.path(first) if message.role == "assistant"]
    assert stats[0] != stats[1]

    def shown() -> int:
        found = talking.said["stats_changed"][-1][0]
        return found.new_tokens if found is not None else 0

    assert shown() == stats[1]["new_tokens"] == 1
    session.new_conversation()
    assert (shown(), talking.said["title_changed"][-1]) == (0, ("",))
    session.open_conversation(first)
    assert (shown(), talking.said["title_changed"][-1]) == (1, ("one two three four",))
