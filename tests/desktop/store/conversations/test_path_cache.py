"""Paths that are read again only where something has changed are those that are read anew."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from desktop.store.conversations import path_cache
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.messages import read_tree
from desktop.store.conversations.path_cache import MOST, PathCache
from desktop.store.conversations.trash import empty_trash
from desktop.store.conversations.tree import Tree
from desktop.store.database.database import Database, StoreError
from desktop.store.database.row_changes import RowChanges
from tests.desktop.store.conversations.test_messages import long_talk


def anew(database: Database, conversation: int) -> tuple[object, ...]:
    return PathCache(database).path(conversation)


def test_of_another_file_all_rows_may_have_changed() -> None:
    changes = RowChanges("messages")
    for _ in range(2):
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY)")
            changes.watch(connection)
            assert changes.take(1) is None
            connection.execute("INSERT INTO messages VALUES (7), (8)")
            connection.execute("DELETE FROM messages WHERE id = 8")
            assert changes.take(1) == {7, 8}
            assert changes.take(1) == frozenset()
            assert changes.take(2) is None  # another connection wrote
            changes.undone()
            assert changes.take(2) is None
            changes.take(1)  # a new connection counts from 1 as well


def undone(store: ConversationStore, database: Database, message: int) -> None:
    """A change that is seen and then rolled back."""
    conversation = store.message(message).conversation_id
    with database.transaction():
        database.execute("UPDATE messages SET text = 'not so' WHERE id = ?", (message,))
        assert store.path(conversation) == anew(database, conversation)
        raise ZeroDivisionError


def test_after_any_change_a_path_is_the_one_in_the_file(store: ConversationStore, database: Database) -> None:
    draw = random.Random(7)
    conversation, ids = long_talk(store, 6)
    others = [long_talk(store, 3) for _ in range(MOST)]
    second = Database.second(database.path)
    gone: list[int] = []
    for number in range(400):
        here = draw.choice(ids)
        act = draw.randrange(12)
        if act < 3:
            ids.append(store.add_message(conversation, here, "user", f"new {number}").id)
        elif act == 3:
            ids.append(store.edit_message(here, f"edited {number}").id)
        elif act == 4:
            store.delete_message(here)
            gone.append(here)
        elif act == 5 and gone:
            store.undelete_message(gone.pop())
        elif act == 6:
            store.show_variant(here)
        elif act == 7:
            store.resume(here)
            store.checkpoint(here, f"so far {number}")
        elif act == 8:
            store.finish(here, f"done {number}", "complete", {"tokens": number})
        elif act == 9:
            second.execute("UPDATE messages SET text = ? WHERE id = ?", (f"elsewhere {number}", here))
        elif act == 10:
            with pytest.raises(ZeroDivisionError):
                undone(store, database, here)
        elif act == 11:
            other, messages = draw.choice(others)
            messages.append(store.add_message(other, draw.choice(messages), "user", f"beside {number}").id)
            assert store.path(other) == anew(database, other)
        if draw.random() < 0.7:
            assert store.path(conversation) == anew(database, conversation)
    for number in (conversation, *(other for other, _ in others)):
        assert store.path(number) == anew(database, number)
    second.close()


def test_messages_deleted_with_their_chat_and_a_replaced_file_are_noticed(
    store: ConversationStore, database: Database
) -> None:
    conversation, _ = long_talk(store, 4)
    assert len(store.path(conversation)) == 4
    store.delete(conversation)
    for _ in empty_trash(database):
        pass
    assert store.path(conversation) == ()
    again, ids = long_talk(store, 3)
    assert [message.id for message in store.path(again)] == ids
    database.close()
    database.path.unlink()
    database.reopen()
    assert store.path(again) == ()
    store.create()
    made, ids = long_talk(store, 2)
    assert [message.id for message in store.path(made)] == ids
    ids.append(store.add_message(made, ids[-1], "user", "third").id)
    assert [message.id for message in store.path(made)] == ids


def test_what_fails_to_be_read_is_read_anew(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, ids = long_talk(store, 4)
    before = store.path(conversation)
    store.finish(ids[3], "changed", "complete", {})
    with monkeypatch.context() as patch:
        patch.setattr(path_cache, "read_nodes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.path(conversation)
    after = store.path(conversation)
    assert [message.text for message in after] == [*(message.text for message in before[:3]), "changed"]


def test_messages_removed_by_another_process_while_they_are_read(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, ids = long_talk(store, 4)
    other = Database.second(database.path)

    def read_then_removed(database: Database, chat: int) -> Tree:
        found = read_tree(database, chat)
        other.execute("DELETE FROM messages WHERE id = ?", (ids[3],))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(path_cache, "read_tree", read_then_removed)
        with pytest.raises(StoreError, match=f"no message number {ids[3]}"):
            store.path(conversation)
    assert [message.id for message in store.path(conversation)] == ids[:3]
    other.close()


def test_a_change_of_one_message_reads_one(store: ConversationStore) -> None:
    """To send a message in a chat of ten thousand read forty thousand."""
    conversation, ids = long_talk(store, 300)
    before = store.path(conversation)
    assert all(old is new for old, new in zip(before, store.path(conversation), strict=True))
    store.finish(ids[299], "the end", "complete", {})
    added = store.add_message(conversation, ids[-1], "user", "one more")
    after = store.path(conversation)
    assert [new for old, new in zip(before, after[:300], strict=True) if old is not new] == [after[299]]
    assert after[299].text == "the end"
    assert after[300] == added
    other = store.edit_message(ids[150], "another version")
    cut = store.path(conversation)
    assert [message.id for message in cut] == [*ids[:150], other.id]
    assert all(old is new for old, new in zip(before[:149], cut[:149], strict=True))
    assert cut[150].variant_count == 2


def test_a_path_without_a_change_is_the_same_object(store: ConversationStore) -> None:
    """It is asked for several times at each end of a reply, and walking 10,000 messages takes a while."""
    conversation, ids = long_talk(store, 6)
    before = store.path(conversation)
    assert store.path(conversation) is before
    store.resume(ids[-1])
    assert store.path(conversation) is not before


def test_a_few_conversations_are_kept(store: ConversationStore) -> None:
    """Replies in two chats at once made each read all of its messages again."""
    chats = [long_talk(store, 5) for _ in range(MOST + 1)]
    paths = [store.path(chat) for chat, _ in chats]
    for (chat, _), before in zip(chats[1:], paths[1:], strict=True):
        assert all(old is new for old, new in zip(before, store.path(chat), strict=True))
    assert not any(old is new for old, new in zip(paths[0], store.path(chats[0][0]), strict=True))
    changed, ids = chats[2]
    store.finish(ids[4], "the end", "complete", {})
    assert store.path(chats[3][0]) == paths[3]
    after = store.path(changed)
    assert [new for old, new in zip(paths[2], after, strict=True) if old is not new] == [after[4]]
    assert store.path(changed) is after
    store.finish(chats[3][1][4], "elsewhere", "complete", {})
    assert store.path(changed) is after
