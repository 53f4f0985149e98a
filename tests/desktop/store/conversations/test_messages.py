"""Paths of thousands of messages: read and shown with the work of a few."""

from __future__ import annotations

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database


def long_talk(store: ConversationStore, count: int) -> tuple[int, list[int]]:
    """A conversation of `count` messages, one below the other."""
    conversation = store.create().id
    ids: list[int] = []
    for number in range(count):
        role = "assistant" if number % 2 else "user"
        ids.append(store.add_message(conversation, ids[-1] if ids else None, role, f"{number}").id)
    return conversation, ids


def test_a_path_to_a_message_is_what_its_messages_are_one_by_one(store: ConversationStore) -> None:
    _, ids = long_talk(store, 8)
    first = store.edit_message(ids[0], "first")
    other = store.edit_message(ids[3], "other")
    store.edit_message(ids[3], "third")
    store.delete_message(other.id)
    below = store.add_message(other.conversation_id, other.id, "user", "below")
    store.delete_message(ids[5])
    for last in (*ids, first.id, other.id, below.id):
        one_by_one = tuple(store.message(number) for number in reversed(store.ancestry(last)))
        assert store.path_to(last) == one_by_one
    assert store.path_to(10**9) == ()


@pytest.mark.parametrize("method", ["path_to", "show_variant"])
def test_the_statements_do_not_grow_with_the_path(
    method: str, store: ConversationStore, database: Database
) -> None:
    """Ten thousand messages froze the window for a second, at a statement or two a message."""
    counts = []
    for length in (20, 200):
        conversation, ids = long_talk(store, length)
        aside = store.edit_message(ids[1], "aside")
        assert store.path(conversation)[-1].id == aside.id
        statements: list[str] = []
        database._connection.set_trace_callback(statements.append)
        try:
            getattr(store, method)(ids[-1])
        finally:
            database._connection.set_trace_callback(None)
        counts.append(len(statements))
        if method == "show_variant":
            assert [message.id for message in store.path(conversation)] == ids
    assert counts[0] == counts[1] > 0
