"""The trash: emptied by age, in steps, for chains of any length; restoring; temporary conversations."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.conversations.trash import DAY_S, STEP_MESSAGES, delete_for_good, empty_trash
from desktop.store.database.database import Database, StoreError


def count(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_emptied_by_age(store: ConversationStore, database: Database) -> None:
    talks = [store.create(name).id for name in ("old", "new", "kept")]
    for talk in talks[:2]:
        store.delete(talk)
    database.execute(
        "UPDATE conversations SET deleted_at = ? WHERE id = ?", (time.time() - 40 * DAY_S, talks[0])
    )
    assert [row.title for row in store.list(deleted=True)] == ["new", "old"]
    assert list(empty_trash(database, 30 * DAY_S))[-1] == 1
    assert [row.title for row in store.list(deleted=True)] == ["new"]
    assert list(empty_trash(database))[-1] == 1
    assert [row.title for row in store.list()] == ["kept"]
    assert list(empty_trash(database)) == []


@pytest.mark.slow
def test_a_long_chain_is_deleted_in_short_steps(store: ConversationStore, database: Database) -> None:
    talk = store.create("Long").id
    parent = None
    with database.transaction():
        for number in range(3000):  # SQLite itself follows such a chain only 1000 deep
            parent = database.execute(
                "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at) VALUES "
                "(?, ?, 'user', ?, 'complete', 1)",
                (talk, parent, f"word{number} in a long talk"),
            ).lastrowid
    store.finish(int(parent or 0), "the end", "complete", {}, b"tokens")
    list(delete_for_good(database, talk))
    assert count(database, "messages") == 3000  # not in the trash
    store.delete(talk)
    assert STEP_MESSAGES <= 50  # with 300, a step of a usual chat took 120 ms
    assert len(list(delete_for_good(database, talk))) == 3000 // STEP_MESSAGES
    assert [count(database, table) for table in ("conversations", "messages", "message_tokens")] == [0, 0, 0]
    database.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, message_words, instance)")
    assert database.execute("SELECT count(*) FROM temp.words").fetchone() == (0,)


def test_an_interrupted_deletion_is_completed_next_time(store: ConversationStore, database: Database) -> None:
    talk = store.create("Talk").id
    for number in range(700):
        store.add_message(talk, None, "user", str(number))
    store.delete(talk)
    next(delete_for_good(database, talk))
    assert 0 < count(database, "messages") < 700
    assert store.list(deleted=True) == ()
    with pytest.raises(StoreError, match="deleted permanently"):
        store.restore(talk)
    steps = -(-count(database, "messages") // STEP_MESSAGES)
    assert list(empty_trash(database, 30 * DAY_S)) == [0] * steps + [1]  # a stop between two may come soon
    assert (count(database, "messages"), count(database, "conversations")) == (0, 0)


def test_deleting_and_restoring(store: ConversationStore) -> None:
    talk = store.create("Talk").id
    store.delete(talk)
    assert (store.list(deleted=True)[0].deleted_at or 0) > time.time() - 5
    store.restore(talk)
    store.restore(talk)
    assert store.list()[0].deleted_at is None


def test_temporary_conversations_are_never_written(tmp_path: Path, database: Database) -> None:
    stores = ConversationStores(database)
    kept = stores.kept.create("Kept").id
    talk = stores.temporary.create("", {"SamplerSettings": {"top_k": 3}}).id
    assert talk >= FIRST_TEMPORARY
    question = stores.temporary.add_message(talk, None, "user", "a zebracorn secret")
    assert question.id >= FIRST_TEMPORARY
    reply = stores.temporary.add_message(talk, question.id, "assistant", "", "running")
    stores.temporary.checkpoint(reply.id, "half a zebracorn")
    assert stores.of(talk) is stores.of(reply.id) is stores.temporary
    assert stores.of(kept) is stores.kept
    assert [row.id for row in stores.kept.list()] == [kept]
    stores.temporary.set_persona(talk, 7)  # the personas are in the file
    database.execute("PRAGMA wal_checkpoint")
    assert all(b"zebracorn" not in file.read_bytes() for file in tmp_path.iterdir())
    stores.forget(talk)
    assert stores.temporary.list() == ()
    with pytest.raises(StoreError, match="no message"):
        stores.temporary.message(question.id)
    stores.close()


def test_a_temporary_conversation_can_be_kept(database: Database) -> None:
    stores = ConversationStores(database)
    store = stores.temporary
    talk = store.create().id
    first = store.add_message(talk, None, "user", "first question")
    one = store.add_message(talk, first.id, "assistant", "one answer")
    two = store.add_message(talk, first.id, "assistant", "another answer")
    store.finish(one.id, "one answer", "stopped", {"reason": "length"}, b"packed")
    store.show_variant(one.id)
    store.set_system_prompt(talk, "be brief", inherit=False)
    made = stores.keep(talk)
    assert made.id < FIRST_TEMPORARY
    assert (made.title, made.system_prompt, made.inherits_prompt) == ("first question", "be brief", False)
    path = stores.kept.path(made.id)
    assert [(message.text, message.variant_index, message.variant_count) for message in path] == [
        ("first question", 0, 1),
        ("one answer", 0, 2),
    ]
    assert (path[1].state, path[1].stats, stores.kept.tokens(path[1].id)) == (
        "stopped",
        {"reason": "length"},
        b"packed",
    )
    assert [hit.conversation_id for hit in stores.kept.search("another")] == [made.id]
    assert store.list() == ()
    with pytest.raises(StoreError, match="no chat"):
        stores.keep(talk)
    assert two.id >= FIRST_TEMPORARY
    stores.close()
