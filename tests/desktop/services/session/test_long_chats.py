"""Chats of many messages: what a turn costs does not grow with what is above it."""

from __future__ import annotations

import pytest

from desktop.services.engine import reply_runner
from desktop.services.session import pictures
from desktop.store.conversations import messages
from tests.desktop.services.conftest import Harness


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts the messages that are read from the store, those that are made into rows of the model, and those
    made for the model to read.
    """
    counts = {"read": 0, "made": 0, "sent": 0}

    def counting(name: str, function):  # type: ignore[no-untyped-def]
        def counted(*arguments):  # type: ignore[no-untyped-def]
            counts[name] += 1
            return function(*arguments)

        return counted

    monkeypatch.setattr(messages, "_message", counting("read", messages._message))
    monkeypatch.setattr(reply_runner, "message_item", counting("made", reply_runner.message_item))
    monkeypatch.setattr(pictures, "Message", counting("sent", pictures.Message))
    return counts


def test_turns_read_and_make_only_what_they_change(talking: Harness, work: dict[str, int]) -> None:
    session = talking.session
    talking.ask("first")
    store, chat = talking.store, session.conversation
    last = store.path(chat)[-1].id
    for number in range(300):
        last = store.add_message(chat, last, "assistant" if number % 2 else "user", f"text {number}").id
    work.update(read=0, made=0, sent=0)
    assert session.open_conversation(chat)
    assert work["read"] <= 310
    assert work["made"] <= 310
    assert session.next_messages("a message")
    assert work["sent"] <= 310

    def cost(act, *arguments) -> None:  # type: ignore[no-untyped-def]
        work.update(read=0, made=0, sent=0)
        assert act(*arguments)
        talking.until_idle()
        assert work["read"] <= 25, act
        assert work["made"] <= 25, act
        assert session.next_messages("and the next one")  # for the count of tokens
        assert work["sent"] <= 25, act
        assert [item.text for item in session.messages.items()] == talking.saved()

    cost(session.submit, "hello")
    cost(session.regenerate, session.messages.items()[-1].id)
    cost(session.show_variant, session.messages.items()[-1].id, -1)
    cost(session.edit, session.messages.items()[-2].id, "other words")
    cost(session.delete_message, session.messages.items()[-1].id)
    cost(session.undo)
