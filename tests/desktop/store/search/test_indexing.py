"""Indexing an old file in steps; meanwhile everything can be found, and changes are followed."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database
from desktop.store.database.migrations import conversations_and_messages, full_text_search, message_tokens
from desktop.store.search.folding import fold, index_text
from desktop.store.search.indexing import index_step
from tests.work import database_work

OLD = (conversations_and_messages, full_text_search, message_tokens)


def old_file(path: Path, messages: int) -> None:
    database = Database(path, OLD)
    with database.transaction():
        database.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Old', 1, 1)")
        for number in range(messages):
            state = "stopped" if number % 50 else "running"
            database.execute(
                "INSERT INTO messages (conversation_id, role, text, state, created_at) VALUES (1, 'user', "
                "?, ?, 1)",
                (f"number{number} " + "lorem ipsum dolor " * 20, state),
            )
    database.close()


def found(store: ConversationStore, query: str) -> list[int]:
    quick = [hit.message_id for hit in store.search(query, 1000)]
    return sorted(quick + [hit.message_id for hits in store.search_rest(query, quick) for hit in hits])


def test_an_old_file_is_indexed_in_short_steps(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    old_file(path, 3000)
    database = Database(path)
    store = ConversationStore(database)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert found(store, "number7") == [8, *range(71, 81), *range(701, 801)]  # none of them is indexed
    steps, lefts = [], [3001]
    while True:
        with database_work(database) as done:
            progress = index_step(database)
        steps.append(done[0])
        if progress.done:
            break
        assert progress.left < lefts[-1] or progress.left == 0
        lefts.append(progress.left)
    assert len(lefts) > 5
    assert max(steps) < sum(steps) / 3  # none is a large part of the whole
    assert (
        database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'message_search%'").fetchall() == []
    )
    assert [hit.message_id for hit in store.search("number7", 1000)] == [
        *range(800, 700, -1),
        *range(80, 70, -1),
        8,
    ]
    assert index_step(database).done
    database.execute("INSERT INTO message_words (message_words) VALUES ('integrity-check')")
    database.close()


def test_an_interrupted_step_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    old_file(path, 500)
    for _ in range(200):
        database = Database(path)
        done = index_step(database, 20_000).done
        database.close()
        if done:
            break
    assert done
    database = Database(path)
    assert [hit.message_id for hit in ConversationStore(database).search("number321")] == [322]
    database.close()


def test_the_index_is_merged_as_it_grows_and_then_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    old_file(path, 3000)
    database = Database(path)
    while not index_step(database, 20_000).done:
        parts = database.execute("SELECT count(DISTINCT segid) FROM message_words_idx").fetchone()[0]
        assert parts < 16  # at 16 of one level SQLite merges them all, however long that takes
    assert database.execute("SELECT v FROM message_words_config WHERE k = 'automerge'").fetchone() == (4,)
    database.close()


def test_an_empty_file_needs_no_step(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    assert index_step(database) == (0, True)
    database.close()


@pytest.mark.slow
def test_the_index_is_small(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    store, draw = ConversationStore(database), random.Random(3)
    number = store.create().id
    words = ["".join(draw.choices("abcdefghiklmnoprstu", k=draw.randint(2, 9))) for _ in range(5000)]
    with database.transaction():
        for _ in range(3000):
            text = " ".join(draw.choices(words, cum_weights=range(1, 5001), k=80))
            database.execute(
                "INSERT INTO messages (conversation_id, role, text, state, created_at) VALUES (?, 'user', "
                "?, 'complete', 1)",
                (number, text),
            )
    texts = database.execute("SELECT sum(length(text)) FROM messages").fetchone()[0]
    size = database.execute("SELECT sum(length(block)) FROM message_words_data").fetchone()[0]
    assert size < 0.4 * texts
    database.close()


class Changes(RuleBasedStateMachine):
    """Any order of writing, ending, resuming, deleting and indexing: the index has the words of exactly
    the texts that are there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.database = Database(MEMORY)
        self.store = ConversationStore(self.database)
        self.talk = self.store.create().id

    texts = st.text(st.sampled_from("ab é中国 _.한"), max_size=12)

    @initialize(count=st.integers(0, 6))
    def before_the_index(self, count: int) -> None:
        self.database.execute("UPDATE search_state SET low = ?", (count + 1,))
        for number in range(count):
            self.store.add_message(
                self.talk, None, "user", f"a{number} é中", "running" if number == 2 else "complete"
            )

    def pick(self, number: int) -> int | None:
        ids = [row[0] for row in self.database.execute("SELECT id FROM messages ORDER BY id").fetchall()]
        return ids[number % len(ids)] if ids else None

    @rule(text=texts, state=st.sampled_from(("complete", "running")))
    def add(self, text: str, state: str) -> None:
        self.store.add_message(self.talk, None, "user", text, state)

    @rule(number=st.integers(0, 99), text=texts, state=st.sampled_from(("complete", "running", "failed")))
    def change(self, number: int, text: str, state: str) -> None:
        if (message := self.pick(number)) is not None:
            self.store.finish(message, text, state, {})

    @rule(number=st.integers(0, 99))
    def resume(self, number: int) -> None:
        if (message := self.pick(number)) is not None:
            self.store.resume(message)

    @rule(number=st.integers(0, 99))
    def delete(self, number: int) -> None:
        self.database.execute("DELETE FROM messages WHERE id = ?", (self.pick(number),))

    @rule()
    def index(self) -> None:
        index_step(self.database, 300)

    @invariant()
    def the_index_is_right(self) -> None:
        (low,) = self.database.execute("SELECT low FROM search_state").fetchone()
        rows = self.database.execute(
            "SELECT id, text FROM messages WHERE state <> 'running' AND id >= ?", (low,)
        ).fetchall()
        expected = {(number, token) for number, text in rows for token in index_text(text).split()}
        self.database.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab (main, message_words, instance)"
        )
        assert {
            (row[1], row[0]) for row in self.database.execute("SELECT term, doc FROM temp.words").fetchall()
        } == expected

    @invariant()
    def everything_is_found(self) -> None:
        rows = self.database.execute("SELECT id, text FROM messages WHERE state <> 'running'").fetchall()
        for query in ("a", "中国", "e"):
            assert found(self.store, query) == sorted(number for number, text in rows if query in fold(text))

    def teardown(self) -> None:
        self.database.close()


Changes.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
test_every_order_of_changes = Changes.TestCase


def test_other_programs_can_still_read(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    store.add_message(store.create("Hello").id, None, "user", "plain text")
    other = sqlite3.connect(tmp_path / "a.sqlite3")
    assert other.execute("SELECT text FROM messages").fetchall() == [("plain text",)]
    other.close()
    database.close()
