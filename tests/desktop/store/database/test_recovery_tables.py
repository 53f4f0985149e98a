"""Recovery restores every table of the schema and reports possible losses; a migration that adds a table must
add rows here.
"""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.conversations.tool_calls import StoredCall
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.open import open_conversations
from desktop.store.database.page_reader import leaf_rows
from desktop.store.database.recovery import recover
from desktop.store.database.recovery_tables import content_tables, label

PAGE = 4096
COUNT = 60
WORDS = "some words that a person wrote " * 8


def shown(n: int) -> str:
    return f'![p](picture:{n:032x} "640x480")'


ROWS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "folders": lambda n: (n, n - 1 or None, f"Folder {n}", n, "{}", WORDS),
    "personas": lambda n: (n, f"Persona {n}", "A", b"\x89PNG" * 9, WORDS, "precise", "/models/a.gguf", n % 2),
    "conversations": lambda n: (
        n, f"Talk {n}", 0, 1e9 + n, 1e9 + n + 0.5, 0, '{"sampler": {"seed": 1}}', WORDS, "/models/a.gguf",
        None,
        n, 1, None, n, 1, 0, "", "chat", n % 2,
    ),
    "messages": lambda n: (
        n, n, None, "user", f"{n} {WORDS} {shown(n)}", "complete", 1e9 + n, "{}", 0, None, "Ada", 1,
        StoredCall(f"call {n}", "search", '{"words": "sea"}').text() if n % 2 else "",
    ),
    "message_tokens": lambda n: (n, b"\x01\x78" + bytes(range(200))),
    "message_origins": lambda n: (n, n - 1, n % 20, b"\x01" + bytes(range(200))),
    "imports": lambda n: ("chatgpt", f"key {n} " + "k" * 100, n, 1e9 + n + 0.25),
    "imported_messages": lambda n: (n, f"key {n}", None if n % 2 else b'{"raw": 1}' * 20),
    "drafts": lambda n: (n, f"{n} {WORDS}", 1e9 + n, "Sure"),
    "draft_files": lambda n: (n, n % 3, f"file {n}.txt", WORDS, "first 3 of 5 pages", ""),
    "prompts": lambda n: (n, f"Prompt {n}", WORDS),
    "queued_messages": lambda n: (n, n, f"{n} {WORDS}", "Sure"),
    "pictures": lambda n: (n, f"{n:032x}", "image/png", 640, 480, b"\x89PNG" + bytes(range(256)) * 9),
    "message_pictures": lambda n: (n, f"{n:032x}"),
    "whole_texts": lambda n: (n, n, f"file {n}.txt", f"{n:032x}", b"\x78\x01" + bytes(range(200)) * 3),
}  # fmt: skip
Tables = dict[str, list[tuple[Any, ...]]]


def tables_of(database: Database) -> Tables:
    return {
        table.name: sorted(database.execute(f"SELECT * FROM {table.name}"))
        for table in content_tables(database)
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tables]:
    path = tmp_path_factory.mktemp("tables") / "whole.sqlite3"
    database = open_conversations(path)
    for number in range(1, COUNT + 1):
        with database.transaction():
            for table, row in ROWS.items():
                values = row(number)
                database.execute(
                    f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values
                )
    found = tables_of(database)
    database.close()
    return path, found


def pages_of(path: Path, name: str, kind: str = "leaf") -> list[int]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY pageno", (name, kind)
        )
        return [int(row[0]) for row in found]
    finally:
        connection.close()


def broken(whole: Path, path: Path, page: int, at: int = 0, count: int = PAGE) -> None:
    data = bytearray(whole.read_bytes())
    data[(page - 1) * PAGE + at : (page - 1) * PAGE + at + count] = b"\xa5" * count
    path.write_bytes(data)


def indexes(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [
            str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        ]
    finally:
        connection.close()


def test_the_tables_here_are_those_of_the_schema() -> None:
    """When a migration adds a table, add its rows above, and check that the tests below recover them."""
    database = Database(MEMORY)
    assert {table.name for table in content_tables(database)} == set(ROWS)
    bookkeeping = {"migrations", "search_state", "message_words", "sqlite_sequence"}
    rest = (
        {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        - set(ROWS)
        - bookkeeping
    )
    assert all(name.startswith("message_words_") for name in rest)
    database.close()


def test_a_future_table_is_copied_according_to_the_schema(tmp_path: Path) -> None:
    def add_bookmarks(connection: sqlite3.Connection) -> None:
        connection.execute(
            "CREATE TABLE bookmarks (id INTEGER PRIMARY KEY, message_id INTEGER REFERENCES messages (id), "
            "note TEXT NOT NULL)"
        )

    steps = (*MIGRATIONS, add_bookmarks)
    database = open_conversations(tmp_path / "a.sqlite3", steps)
    database.execute("INSERT INTO bookmarks VALUES (3, NULL, 'a note')")
    database.close()
    fresh = open_conversations(tmp_path / "b.sqlite3", steps)
    found = recover(tmp_path / "a.sqlite3", fresh)
    assert found.rows["bookmarks"] == 1
    assert not found.gaps
    assert fresh.execute("SELECT * FROM bookmarks").fetchall() == [(3, None, "a note")]
    fresh.close()


@pytest.mark.slow
def test_one_damaged_page_of_any_index_loses_nothing(tmp_path: Path, whole: tuple[Path, Tables]) -> None:
    for index in indexes(whole[0]):
        for page in pages_of(whole[0], index)[:1]:
            broken(whole[0], tmp_path / "a.sqlite3", page, count=64)
            database = open_conversations(tmp_path / "a.sqlite3")
            assert tables_of(database) == whole[1], index
            assert "Nothing is missing" in database.notices[0], index
            database.close()


@pytest.mark.parametrize("table", sorted(ROWS))
def test_a_damaged_page_of_a_table_is_reported_and_costs_only_its_rows(
    tmp_path: Path, whole: tuple[Path, Tables], table: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    name = table
    pages = pages_of(whole[0], name)
    broken(whole[0], tmp_path / "a.sqlite3", pages[len(pages) // 2])
    database = open_conversations(tmp_path / "a.sqlite3")
    found = tables_of(database)
    if table == "message_pictures":  # written again with the messages
        assert (found[table], "Nothing is missing" in database.notices[0]) == (whole[1][table], True)
        database.close()
        return
    assert f"may be missing from: {label(table)}. An" in database.notices[0]
    told = [record.args[2] for record in caplog.records if "some may be missing" in record.getMessage()]
    assert told == [table]
    assert 0 < len(found[table]) < COUNT or (table == "conversations" and len(found[table]) == COUNT)
    refers_to = {
        "conversations": ("messages",),
        "messages": (
            "message_tokens",
            "message_origins",
            "imported_messages",
            "message_pictures",
            "pictures",  # which go with the messages that have them
        ),
    }
    for other, rows in whole[1].items():
        if other == table:
            continue
        if table in ("folders", "personas") and other in ("conversations", "folders"):
            assert [row[:10] for row in found[other]] == [row[:10] for row in rows]
        elif other not in refers_to.get(table, ()) and not (table == "conversations" and other == "imports"):
            assert found[other] == rows, other
    database.close()


def test_without_a_schema_every_row_is_known_by_its_page(tmp_path: Path, whole: tuple[Path, Tables]) -> None:
    broken(whole[0], tmp_path / "a.sqlite3", 1, 100, PAGE - 100)
    database = open_conversations(tmp_path / "a.sqlite3")
    assert tables_of(database) == whole[1]
    assert all(label(table) in database.notices[0] for table in ROWS)  # nobody can know that this is all
    database.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_is_never_reported_as_complete(
    tmp_path: Path, whole: tuple[Path, Tables], seed: int
) -> None:
    draw = random.Random(seed)
    data = bytearray(whole[0].read_bytes())
    for page in draw.sample(range(2, len(data) // PAGE + 1), 6):
        start = (page - 1) * PAGE + draw.choice((0, 0, 500))
        data[start : start + 512] = draw.randbytes(512)
    (tmp_path / "a.sqlite3").write_bytes(data)
    database = open_conversations(tmp_path / "a.sqlite3")
    found = tables_of(database)
    lost = {table for table, rows in whole[1].items() if len(found[table]) < len(rows)}
    notice = database.notices[0]
    # they go with what they belong to
    children = {"message_tokens", "message_origins", "imported_messages", "imports"}
    children |= {"message_pictures", "pictures"}
    assert all(label(table) in notice for table in lost - children)
    assert not lost or "Everything" not in notice
    database.close()


def test_rows_in_an_index_but_on_no_page_are_reported(tmp_path: Path, whole: tuple[Path, Tables]) -> None:
    """A page that claims fewer rows than it has: SQLite reads it without an error."""
    data = bytearray(whole[0].read_bytes())
    page = pages_of(whole[0], "messages")[1]
    at = (page - 1) * PAGE + 3
    assert data[at + 1] > 3
    data[at : at + 2] = b"\0\1"
    (tmp_path / "a.sqlite3").write_bytes(data)
    database = open_conversations(tmp_path / "a.sqlite3")
    assert len(tables_of(database)["messages"]) < COUNT
    assert "may be missing from: messages." in database.notices[0]
    database.close()


def test_rows_found_only_on_a_page_are_recovered_and_reported(tmp_path: Path) -> None:
    """The root of a table ends it early without an error: its rows exist, and no index has their number."""
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    for number in range(1, 400):
        database.execute("INSERT INTO prompts VALUES (?, ?, ?)", (number, f"Prompt {number}", WORDS))
    before = tables_of(database)["prompts"]
    database.close()
    (root,) = pages_of(path, "prompts", "internal")
    data = bytearray(path.read_bytes())
    at = (root - 1) * PAGE
    data[at + 3 : at + 5] = b"\0\1"  # one child, and the last one
    path.write_bytes(data)
    fresh = open_conversations(tmp_path / "b.sqlite3")
    found = recover(path, fresh)
    assert tables_of(fresh)["prompts"] == before
    assert found.lost == ("prompts",)
    assert found.gaps
    fresh.close()


def test_a_table_missing_from_the_schema_is_reported(tmp_path: Path, whole: tuple[Path, Tables]) -> None:
    path = tmp_path / "a.sqlite3"
    shutil.copyfile(whole[0], path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_master WHERE tbl_name = 'prompts'")
    connection.close()
    fresh = open_conversations(tmp_path / "b.sqlite3")
    found = recover(path, fresh)
    assert found.lost == ("prompts",)
    assert tables_of(fresh)["prompts"] == whole[1]["prompts"]
    fresh.close()


def test_all_of_a_file_that_is_no_database_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite3").write_bytes(b"this is no database" * 1000)
    fresh = open_conversations(tmp_path / "b.sqlite3")
    found = recover(tmp_path / "a.sqlite3", fresh)
    assert found.lost == tuple(table.name for table in content_tables(fresh))
    assert not any(found.rows.values())
    fresh.close()


def test_a_file_of_an_older_version_misses_nothing(tmp_path: Path) -> None:
    old = open_conversations(tmp_path / "a.sqlite3", MIGRATIONS[:1])
    old.execute(
        "INSERT INTO conversations (title, created_at, updated_at, deleted) VALUES ('Kept', 1, 2, 0), "
        "('Thrown away', 3, 4, 1)"
    )
    old.execute(
        "INSERT INTO messages (conversation_id, role, text, state, created_at, deleted) VALUES (1, 'user', "
        "'hello', 'complete', 1, 1)"
    )
    old.close()
    fresh = open_conversations(tmp_path / "b.sqlite3")
    assert recover(tmp_path / "a.sqlite3", fresh).lost == ()
    assert fresh.execute("SELECT title, deleted_at, holes FROM conversations ORDER BY id").fetchall() == [
        ("Kept", None, 1),
        ("Thrown away", 4.0, 0),
    ]
    fresh.close()


def test_a_lost_chat_is_made_again_from_its_messages(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    database.execute("PRAGMA foreign_keys = OFF")
    for role, text, at in (("assistant", "Hello", 3), ("user", "Why?", 9), ("user", "And?", 7)):
        database.execute(
            "INSERT INTO messages (conversation_id, role, text, state, created_at) "
            "VALUES (7, ?, ?, 'complete', ?)",
            (role, text, at),
        )
    database.close()
    fresh = open_conversations(tmp_path / "b.sqlite3")
    recover(tmp_path / "a.sqlite3", fresh)
    assert fresh.execute("SELECT id, title, created_at, updated_at FROM conversations").fetchall() == [
        (7, "Why?", 3.0, 9.0)
    ]
    fresh.close()


def test_references_across_conversations_and_cycles_are_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    database.execute("PRAGMA foreign_keys = OFF")
    for number in (1, 2):
        database.execute(
            "INSERT INTO conversations (id, title, created_at, updated_at) VALUES (?, 'Talk', 1, 1)",
            (number,),
        )
    rows = [(1, 1, None), (2, 1, 1), (3, 2, None), (4, 2, 2), (5, 2, 6), (6, 2, 5), (7, 2, 7), (8, 1, 99)]
    for number, conversation, parent in rows:
        database.execute(
            "INSERT INTO messages (id, conversation_id, parent_id, role, text, state, created_at) "
            "VALUES (?, ?, ?, 'user', 'x', 'complete', 1)",
            (number, conversation, parent),
        )
    folders = [(1, None), (2, 3), (3, 2), (4, 4), (5, 99), (6, 5)]
    for number, parent in folders:
        database.execute(
            "INSERT INTO folders (id, parent_id, name) VALUES (?, ?, 'Folder')", (number, parent)
        )
    database.execute("INSERT INTO queued_messages (conversation_id, text) VALUES (40, 'waits')")
    database.execute("INSERT INTO drafts (conversation_id, text, updated_at) VALUES (41, 'unsent', 5)")
    database.execute("INSERT INTO imports VALUES ('chatgpt', 'k', 42, 1)")
    database.execute("UPDATE conversations SET folder_id = 98, persona_id = 97")
    database.close()
    fresh = open_conversations(tmp_path / "b.sqlite3")
    recover(path, fresh)
    parents = dict(fresh.execute("SELECT id, parent_id FROM messages").fetchall())
    assert parents == {1: None, 2: 1, 3: None, 4: 3, 5: 4, 6: 5, 7: 6, 8: 2}
    assert dict(fresh.execute("SELECT id, parent_id FROM folders").fetchall()) == {
        1: None,
        2: None,
        3: None,
        4: None,
        5: None,
        6: 5,
    }
    assert fresh.execute("SELECT id FROM conversations WHERE title = 'Recovered chat'").fetchall() == [
        (40,),
        (41,),
    ]
    assert fresh.execute("SELECT text FROM queued_messages").fetchall() == [("waits",)]
    assert fresh.execute("SELECT text FROM drafts").fetchall() == [("unsent",)]
    # a note without its chat would keep it from coming again
    assert fresh.execute("SELECT count(*) FROM imports").fetchone() == (0,)
    assert fresh.execute("PRAGMA foreign_key_check").fetchall() == []
    fresh.close()


@pytest.mark.parametrize("far", [FIRST_TEMPORARY, 1 << 40])
def test_a_broken_number_does_not_become_that_of_a_temporary_chat(tmp_path: Path, far: int) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    database.execute(
        "INSERT INTO conversations (id, title, created_at, updated_at) VALUES (?, 'Far away', 1, 1)", (far,)
    )
    database.execute("INSERT INTO conversations (id, title, created_at, updated_at) VALUES (7, 'Here', 1, 1)")
    database.close()
    fresh = open_conversations(tmp_path / "b.sqlite3")
    assert recover(path, fresh).lost == ("conversations",)
    assert (
        fresh.execute(
            "INSERT INTO conversations (title, created_at, updated_at) VALUES ('Next', 1, 1)"
        ).lastrowid
        == 8
    )
    fresh.close()


def test_what_the_log_did_not_commit_is_not_read(tmp_path: Path) -> None:
    source = tmp_path / "live.sqlite3"
    database = open_conversations(source)
    database.execute("INSERT INTO prompts VALUES (1, 'kept', 'committed words')")
    database.execute("PRAGMA cache_size = 10")  # so that what is not committed goes to the log all the same
    database.execute("BEGIN")
    for number in range(2, 400):
        database.execute("INSERT INTO prompts VALUES (?, 'unfinished', ?)", (number, WORDS))
    for suffix in ("", "-wal"):
        shutil.copyfile(source.with_name(source.name + suffix), tmp_path / f"a.sqlite3{suffix}")
    assert (tmp_path / "a.sqlite3-wal").stat().st_size > 200_000
    database.execute("ROLLBACK")
    database.close()
    texts = [
        values[2]
        for _, values in leaf_rows(tmp_path / "a.sqlite3")
        if len(values) == 3 and values[1] in ("kept", "unfinished")
    ]
    assert texts == ["committed words"]


def test_a_row_that_the_end_of_the_file_cuts_is_left_out_and_reported(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    for number in range(1, 400):
        database.execute("INSERT INTO prompts VALUES (?, ?, ?)", (number, f"Prompt {number}", WORDS))
    whole = {row[0]: row for row in database.execute("SELECT * FROM prompts")}
    database.close()
    data = (tmp_path / "a.sqlite3").read_bytes()
    cut_rows = 0
    for number in range(50, 400, 120):
        (tmp_path / "b.sqlite3").write_bytes(data[: data.index(b"Prompt %d" % number) + 40])
        fresh = open_conversations(tmp_path / f"fresh{number}.sqlite3")
        lost = recover(tmp_path / "b.sqlite3", fresh).lost
        found = {row[0]: row for row in fresh.execute("SELECT * FROM prompts")}
        assert all(row == whole[number] for number, row in found.items())
        assert found.keys() == whole.keys() or "prompts" in lost
        cut_rows += number not in found
        fresh.close()
    assert cut_rows
