"""The whole texts of files of which messages have a part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.attachments import whole_texts
from desktop.store.attachments.message_format import Attachment, join
from desktop.store.attachments.whole_texts import PackedText, WholeTextStore, packed
from desktop.store.conversations.bulk_insert import RecordWriter, read_whole
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.forking import fork
from desktop.store.conversations.queue import QueueStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.trash import delete_for_good
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.migrations_files import whole_texts as step
from desktop.store.database.open import open_conversations
from desktop.store.database.recovery import recover
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.importers.programs.own import Own

TEXT = "All of a book.\n" * 200
PART = join([Attachment("a book.txt", "All of a book.", "1 of 4 passages")], "What is it?")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[ConversationStores]:
    made = ConversationStores(open_conversations(tmp_path / "conversations.sqlite3"))
    yield made
    made.close()
    made.database.close()


def talk(stores: ConversationStores, text: str = PART, temporary: bool = False) -> tuple[int, int]:
    """A chat with one message, which has the whole text; its id and the message's."""
    store = stores.temporary if temporary else stores.kept
    chat = store.create("").id
    message = store.add_message(chat, None, "user", text).id
    assert WholeTextStore(stores.database_of(chat)).put(chat, [packed("a  book.txt", TEXT)]) == ()
    return chat, message


def texts(stores: ConversationStores, chat: int) -> list[tuple[str, str]]:
    return [(each.name, each.text) for each in WholeTextStore(stores.database_of(chat)).of(chat)]


def test_a_text_is_kept_once_in_each_chat_and_goes_with_it(stores) -> None:
    store = WholeTextStore(stores.database)
    first, _ = talk(stores)
    second, _ = talk(stores)
    assert store.put(first, [packed("a book.txt", TEXT), packed("other.txt", "other")]) == ()
    assert texts(stores, first) == [("a book.txt", TEXT), ("other.txt", "other")]
    assert store.put(999, [packed("a book.txt", TEXT)]) == ()  # a chat that is gone
    stores.kept.delete(first)
    list(delete_for_good(stores.database, first))
    assert texts(stores, first) == []
    assert store.total() == len(packed("", TEXT).data)
    assert texts(stores, second) == [("a book.txt", TEXT)]


def test_what_does_not_fit_is_not_kept(stores, monkeypatch) -> None:
    chat, _ = talk(stores)
    store = WholeTextStore(stores.database)
    monkeypatch.setattr(whole_texts, "MOST_STORED", store.total() + len(packed("b.txt", "b").data))
    assert store.put(chat, [packed("big.txt", TEXT * 9), packed("b.txt", "b")]) == ("big.txt",)
    assert [name for name, _ in texts(stores, chat)] == ["a book.txt", "b.txt"]


def test_damaged_bytes_are_no_text() -> None:
    assert PackedText("a", "", b"x\x01damaged").text == ""
    assert PackedText("a", "", packed("a", TEXT).data[:-30]).text in TEXT


def test_it_stays_while_a_message_a_draft_or_a_queued_message_has_a_part(stores) -> None:
    chat, _ = talk(stores, "no file")
    store, drafts, queue = WholeTextStore(stores.database), DraftStore(stores.database), QueueStore(stores)
    drafts.put_files(chat, [Attachment("a book.txt", "All", "1 of 4 passages")])
    assert store.sweep() == 0
    number = queue.add(chat, PART, "")
    drafts.put_files(chat, [Attachment("a book.txt", "All")])
    assert store.sweep() == 0
    queue.remove(number)
    message = stores.kept.add_message(chat, None, "user", PART)
    assert store.sweep() == 0
    stores.kept.edit_message(message.id, "Without it")  # the earlier version is still there
    assert store.sweep() == 0
    stores.database.execute("DELETE FROM messages WHERE id = ?", (message.id,))
    assert store.sweep() == 1
    assert texts(stores, chat) == []


def test_forks_and_kept_temporary_chats_have_it(stores) -> None:
    _, message = talk(stores)
    assert texts(stores, fork(stores, message)) == [("a book.txt", TEXT)]
    chat, message = talk(stores, temporary=True)
    assert texts(stores, fork(stores, message)) == [("a book.txt", TEXT)]
    kept = stores.keep(chat).id
    assert texts(stores, kept) == [("a book.txt", TEXT)]
    assert texts(stores, chat) == []
    other, _ = talk(stores, temporary=True)
    stores.forget(other)
    assert texts(stores, other) == []


def test_it_is_exported_and_imported(stores, tmp_path: Path) -> None:
    chat, _ = talk(stores)
    (value,) = json.loads("".join(own_json([read_whole(stores.database, chat)])))
    assert value["whole_texts"] == [{"name": "a book.txt", "text": TEXT}]
    record = Own().read(value, lambda place, reason: None)
    assert record.whole_texts == (("a book.txt", TEXT),)
    other = open_conversations(tmp_path / "other.sqlite3")
    made = RecordWriter(other).save(record).conversation_id
    assert [each.text for each in WholeTextStore(other).of(made)] == [TEXT]
    other.close()
    value["whole_texts"] += [{"name": "", "text": "x"}, {"name": "y"}, 3]
    assert Own().read(value, lambda place, reason: None).whole_texts == record.whole_texts


def test_a_file_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite3"
    before = Database(path, MIGRATIONS[: MIGRATIONS.index(step)])
    before.execute("INSERT INTO conversations (created_at, updated_at) VALUES (1, 1)")
    before.close()
    database = open_conversations(path)
    assert WholeTextStore(database).put(1, [packed("a.txt", TEXT)]) == ()
    assert [each.text for each in WholeTextStore(database).of(1)] == [TEXT]
    database.close()


def test_recovery_saves_it(stores, tmp_path: Path) -> None:
    chat, _ = talk(stores)
    stores.database.close()
    database = Database(tmp_path / "new.sqlite3")
    assert recover(tmp_path / "conversations.sqlite3", database).lost == ()
    assert [each.text for each in WholeTextStore(database).of(chat)] == [TEXT]
    database.close()
