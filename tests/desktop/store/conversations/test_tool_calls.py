"""Calls of tools in the store."""

import json
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.forking import fork
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.tool_calls import StoredCall, put_call, read_call
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.migrations_tools import tool_calls
from desktop.store.database.open import open_conversations

CALL = StoredCall("call_1", "files_read", '{"path": "/a"}', "files", "read", True)


def called(store: ConversationStore) -> tuple[int, int]:
    """A conversation that ends with a call, and the id of that message."""
    chat = store.create().id
    asked = store.add_message(chat, None, "user", "What does it say?").id
    reply = store.add_message(chat, asked, "assistant", "I look.").id
    return chat, store.add_message(chat, reply, "tool", "", "stopped", call=CALL).id


def test_a_call_is_kept_with_its_message(store: ConversationStore, database: Database) -> None:
    chat, number = called(store)
    assert store.message(number).call == CALL
    assert [message.call for message in store.path(chat)] == [None, None, CALL]
    put_call(database, number, CALL._replace(waiting=False), "running")
    found = store.message(number)
    assert (found.state, found.call) == ("running", CALL._replace(waiting=False))
    done = store.finish(number, "It says no.", "complete", {})
    assert (done.text, done.state, done.call) == ("It says no.", "complete", CALL._replace(waiting=False))


def test_a_call_that_ran_when_the_program_ended_is_stopped_and_one_that_waited_still_waits(
    store: ConversationStore, database: Database
) -> None:
    _, waits = called(store)
    _, runs = called(store)
    put_call(database, runs, CALL._replace(waiting=False), "running")
    again = ConversationStore(database)
    assert (again.message(runs).state, again.message(runs).call) == ("stopped", CALL._replace(waiting=False))
    assert (again.message(waits).state, again.message(waits).call) == ("stopped", CALL)


def test_a_version_and_a_fork_keep_the_call(database: Database) -> None:
    stores = ConversationStores(database)
    _, number = called(stores.kept)
    assert stores.kept.edit_message(number, "Another result").call == CALL
    copy = stores.kept.path(fork(stores, number))[-1]
    assert (copy.role, copy.call) == ("tool", CALL)
    stores.close()


def test_a_file_of_an_earlier_version_is_backed_up_and_has_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite3"
    before = Database(path, MIGRATIONS[: MIGRATIONS.index(tool_calls)])
    before.execute("INSERT INTO conversations (created_at, updated_at) VALUES (1, 1)")
    before.execute(
        "INSERT INTO messages (conversation_id, role, text, state, created_at) VALUES (1, 'tool', 'a', "
        "'complete', 1)"
    )
    before.close()
    database = open_conversations(path)
    assert ConversationStore(database).message(1).call is None
    database.close()
    assert (tmp_path / "conversations.before-tool_calls.sqlite3").exists()


def test_a_call_is_read_as_it_was_written() -> None:
    assert read_call(CALL.text()) == CALL
    assert read_call(CALL._replace(waiting=False).text()) == CALL._replace(waiting=False)
    assert read_call(json.dumps({"name": "a"})) == StoredCall("", "a", "")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "null", "3", '{"id": "a"}', '{"name": ""}', '{"name": 3}',
        '{"name": "a", "server": []}', pytest.param("[" * 200_000, id="nested without an end"),
    ],
)  # fmt: skip
def test_what_is_no_call_is_none(text: str) -> None:
    assert read_call(text) is None
