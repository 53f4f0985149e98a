"""Queued messages: in order, moved between chats, and those of temporary chats in memory only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from desktop.store.conversations.queue import Queued, QueueStore
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.database.database import Database, StoreError

TEMPORARY = FIRST_TEMPORARY + 5


@pytest.fixture
def stores(database: Database) -> Iterator[ConversationStores]:
    found = ConversationStores(database)
    yield found
    found.close()


def texts(queue: QueueStore, chat: int) -> list[tuple[str, str]]:
    return [(each.text, each.opening) for each in queue.all() if each.conversation_id == chat]


def test_messages_are_kept_in_order_and_removed(stores: ConversationStores) -> None:
    queue, chat = QueueStore(stores), stores.kept.create("Talk").id
    first, second = queue.add(chat, "one", ""), queue.add(chat, "two", "Well,")
    assert queue.all() == (Queued(first, chat, "one"), Queued(second, chat, "two", "Well,"))
    assert QueueStore(stores).all() == queue.all()
    queue.remove(first)
    queue.remove(first)
    assert queue.all() == (Queued(second, chat, "two", "Well,"),)
    stores.kept.delete(chat)
    assert queue.all() == ()


def test_messages_of_temporary_chats_stay_in_memory(stores: ConversationStores) -> None:
    queue, chat = QueueStore(stores), stores.kept.create("Talk").id
    numbers = [queue.add(TEMPORARY, text, "So") for text in ("one", "two", "three")]
    assert len(set(numbers)) == 3
    assert min(numbers) > FIRST_TEMPORARY
    kept = queue.add(chat, "kept", "")
    assert kept < FIRST_TEMPORARY
    queue.remove(numbers[1])
    assert texts(queue, TEMPORARY) == [("one", "So"), ("three", "So")]
    assert QueueStore(stores).all() == (Queued(kept, chat, "kept"),)


def test_messages_move_with_their_chat(stores: ConversationStores) -> None:
    queue = QueueStore(stores)
    chat, other = (stores.kept.create(title).id for title in ("Talk", "Other"))
    queue.add(other, "stays", "")
    for text in ("one", "two"):
        queue.add(TEMPORARY, text, "So")
    queue.move(TEMPORARY, chat)
    assert texts(queue, TEMPORARY) == []
    assert texts(QueueStore(stores), chat) == [("one", "So"), ("two", "So")]
    queue.move(chat, TEMPORARY)
    assert texts(queue, TEMPORARY) == [("one", "So"), ("two", "So")]
    assert [each.text for each in QueueStore(stores).all()] == ["stays"]


def test_what_cannot_be_written_when_it_moves_stays_in_memory(
    stores: ConversationStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, chat = QueueStore(stores), stores.kept.create("Talk").id
    for text in ("one", "two"):
        queue.add(TEMPORARY, text, "")

    def fail(*_what: object) -> int:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(queue, "add", fail)
    with pytest.raises(StoreError, match="The disk is full"):
        queue.move(TEMPORARY, chat)
    assert texts(queue, chat) == [("one", ""), ("two", "")]
    assert texts(queue, TEMPORARY) == []
    left = queue.all()[0].id
    queue.remove(left)
    assert texts(queue, chat) == [("two", "")]
