"""Open WebUI's database: the same chats as in its export, damage is reported, the file stays unchanged."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers.databases import MAGIC
from desktop.store.transfer.importers.peek import is_chats
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, dump, imported, run, shown, written


def made(path: Path, *rows: Any, wal: bool = False) -> Path:
    """A database like Open WebUI's; `rows` are the values of the column `chat`."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        if wal:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE user (id VARCHAR PRIMARY KEY, name TEXT)")
        database.execute(
            "CREATE TABLE chat (id VARCHAR(255) NOT NULL PRIMARY KEY, user_id VARCHAR(255), title TEXT, "
            "share_id TEXT, archived INTEGER, created_at BIGINT, updated_at BIGINT, chat JSON, pinned "
            "BOOLEAN, meta JSON, folder_id TEXT)"
        )
        for number, chat in enumerate(rows, start=1):
            values = (f"o-{number}", "u", "Greeting", 1710000000, 1710000099, chat)
            database.execute(
                "INSERT INTO chat (id, user_id, title, created_at, updated_at, chat) VALUES (?, ?, ?, ?, "
                "?, ?)",
                values,
            )
        database.commit()
    return path


def chat() -> str:
    return json.dumps(files.open_webui()["chat"])


def test_it_has_the_same_chats_as_the_export(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = made(tmp_path / "webui.db", chat(), wal=True)
    before = path.read_bytes()
    (event,) = imported(run(database, path))
    found = store.get(event.conversation_id)
    assert (found.title, found.system_prompt, found.created_at) == ("Greeting", "Be kind.", 1710000000)
    assert [role for role, _ in shown(store, event.conversation_id)] == ["user", "assistant"]
    held = dump(database)
    assert imported(run(database, written(tmp_path / "a.json", [files.open_webui()])))[0].outcome == "known"
    assert dump(database) == held
    assert (path.read_bytes(), sorted(file.name for file in tmp_path.glob("webui*"))) == (
        before,
        ["webui.db"],
    )


def test_a_broken_row_is_reported_and_harms_no_other(database: Database, tmp_path: Path) -> None:
    path = made(
        tmp_path / "webui.db",
        chat(),
        '{"title": "cut',
        None,
        "[" * 100_000,
        json.dumps({"title": "w" * 3_000_000}),
        chat(),
    )
    events = run(database, path, most_bytes=2 << 20)
    assert [event.outcome for event in imported(events)] == ["new", "new"]
    reported = [(event.place.removeprefix("webui.db, "), event.reason) for event in broken(events)]
    assert [place for place, _ in reported] == ["chat 2", "chat 3", "chat 4", "chat 5"]
    assert [reason.partition(" (")[0] for _, reason in reported[:3]] == [
        "Its column “chat” does not hold a chat as JSON"
    ] * 3
    assert reported[3][1] == "It is larger than 2.1 MB."


def test_a_chat_that_is_encoded_twice_is_read_and_one_that_is_no_object_is_reported(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = made(tmp_path / "webui.db", json.dumps(chat()), "[1]", 5, None)
    events = run(database, path)
    (event,) = imported(events)
    assert [role for role, _ in shown(store, event.conversation_id)] == ["user", "assistant"]
    assert [found.reason.partition(" (")[2] for found in broken(events)] == [
        "it is not an object).", "it is a number).", "it is empty).",
    ]  # fmt: skip


def test_a_damaged_row_costs_no_other(database: Database, tmp_path: Path) -> None:
    """A row whose pages are gone lies between two that are whole."""
    long = json.loads(chat()) | {"note": "w" * 20_000}
    path = made(tmp_path / "webui.db", chat(), json.dumps(long), chat())
    data = path.read_bytes()
    place = data.index(b"w" * 4000)
    page = place // 4096 * 4096  # its first four bytes number the page that follows
    path.write_bytes(data[:page] + b"\xff" * 4 + data[page + 4 :])
    events = run(database, path)
    assert [event.outcome for event in imported(events)] == ["new", "new"]
    (found,) = broken(events)
    assert found.place == "webui.db, chat 2"
    assert found.reason.startswith("Its row is damaged (")


def test_a_row_that_is_listed_but_not_found_costs_no_other(database: Database, tmp_path: Path) -> None:
    """The key that leads to it in the table's root page is one too small."""
    path = made(tmp_path / "webui.db", *[chat() + " " * 3000] * 5)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chat'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    page = (root - 1) * size
    assert data[page] == 5  # an interior page of a table
    data[page + int.from_bytes(data[page + 12 : page + 14]) + 4] -= 1
    path.write_bytes(data)
    events = run(database, path)
    assert [event.reason for event in broken(events)] == [
        "Its row is damaged (database disk image is malformed)."
    ]
    assert len(imported(events)) == 4


def test_a_foreign_or_damaged_database_is_reported(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE notes (id, chat)")
        other.execute("CREATE VIEW chat AS SELECT id, chat FROM notes")
    first, *_ = broken(run(database, path))
    assert first.place == "other.db"
    assert first.reason.startswith("It is a SQLite database, but without the tables of a known program")
    whole = made(tmp_path / "webui.db", *[chat()] * 40)
    data = bytearray(whole.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    whole.write_bytes(bytes(data))
    events = run(database, whole)
    assert not imported(events)
    assert "cannot be read" in broken(events)[0].reason or "damaged" in broken(events)[0].reason
    assert (is_chats(path), is_chats(made(tmp_path / "good.db", chat()))) == (False, True)
    path.write_bytes(MAGIC + b"\xff" * 4096)
    assert not is_chats(path)


def test_in_an_archive_beside_other_files(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "backup.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(made(tmp_path / "webui.db", chat()), "data/webui.db")
        archive.writestr("data/readme.txt", "no chats")
    events = run(database, path)
    assert [event.outcome for event in imported(events)] == ["new"]
    assert broken(events) == []


def test_it_can_be_cancelled(database: Database, tmp_path: Path) -> None:
    path = made(tmp_path / "webui.db", *[chat()] * 20)
    left = iter([False] * 30)
    assert len(imported(run(database, path, cancel=lambda: next(left, True)))) < 20
