"""Damaged files: what can be read is saved, nothing is invented, and the damaged file stays unchanged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database import connecting
from desktop.store.database.connecting import check_file
from desktop.store.database.database import Damaged, Database
from desktop.store.database.integrity_marker import known_intact, request_check
from desktop.store.database.open import open_conversations
from desktop.store.database.page_reader import leaf_rows
from desktop.store.search.indexing import index_step

PAGE = 4096
TABLE_LEAF = 0x0D
"""The first byte of such a page (sqlite.org/fileformat2.html, section 1.6)."""
Texts = dict[int, tuple[int, str]]


def build(path: Path, talks: int = 60) -> Texts:
    """A store of short and long messages; returns every message's conversation and text."""
    database = open_conversations(path)
    store, folders, draw = ConversationStore(database), FolderStore(database), random.Random(5)
    folder = folders.create("Work")
    persona = PersonaStore(database).save(Persona(0, "Ada", "A", "be kind", "precise"))
    texts: Texts = {}
    with_tokens = 0
    for number in range(talks):
        talk = store.create(f"Talk {number}").id
        store.set_persona(talk, persona.id)
        store.move([talk], folder.id)
        parent = None
        for place in range(8):
            text = f"message {number}/{place} Grüße 中文 " + "".join(
                draw.choices("abc déf", k=draw.choice((20, 300, 9000)))
            )
            role = "assistant" if place % 2 else "user"
            message = store.add_message(talk, parent, role, text, "running" if place % 2 else "complete")
            if place % 2:
                store.finish(message.id, text, "complete", {"n": place}, b"\x01\x78tokens" + bytes([place]))
                with_tokens += 1
            texts[message.id] = (talk, text)
            parent = message.id
    database.close()
    return texts


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Texts]:
    path = tmp_path_factory.mktemp("recovery") / "whole.sqlite3"
    return path, build(path)


def damaged(whole: Path, path: Path, pages: list[int], keep: int = 0) -> bytes:
    data = bytearray(whole.read_bytes())
    for page in pages:
        start = (page - 1) * PAGE + keep
        data[start : page * PAGE] = b"\xa5" * (PAGE - keep)
    path.write_bytes(data)
    return bytes(data)


def opened(path: Path, texts: Texts) -> tuple[Database, int]:
    """Open a damaged file; everything in it must be true. Returns the number of messages."""
    database = open_conversations(path)
    store = ConversationStore(database)
    rows = database.execute("SELECT id, conversation_id, text, parent_id FROM messages").fetchall()
    for number, talk, text, _ in rows:  # SQLite does not notice other bytes in the middle of a text
        assert texts[number][0] == talk
        assert text == texts[number][1] or "\ufffd" in text
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for row in store.list():
        assert all(message.conversation_id == row.id for message in store.path(row.id))
    while not index_step(database).done:
        pass
    for number, *_ in rows[::40]:
        assert number in [
            hit.message_id for hit in store.search(" ".join(texts[number][1].split()[:4]), 1000)
        ]
    assert "damaged" in database.notices[0]
    return database, len(rows)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(8))
def test_some_bad_pages(tmp_path: Path, whole: tuple[Path, Texts], seed: int) -> None:
    """One of them is a table's leaf without its list of cells, which SQLite notices wherever the others are:
    other bytes within a long text or a part of the index of words it does not.
    """
    draw = random.Random(seed)
    path, texts = tmp_path / "a.sqlite3", whole[1]
    first_bytes = whole[0].read_bytes()[::PAGE]
    pages = draw.sample(range(2, len(first_bytes) + 1), 3)
    leaf = draw.choice([number for number, kind in enumerate(first_bytes, 1) if kind == TABLE_LEAF])
    damaged(whole[0], path, pages, draw.choice((0, 8, 100)))
    before = damaged(path, path, [leaf], draw.choice((0, 8)))
    database, messages = opened(path, texts)
    assert messages >= 0.75 * len(texts)
    kept = next(file for file in tmp_path.iterdir() if ".damaged-" in file.name)
    assert kept.read_bytes() == before
    assert (
        f"Recovered {len(ConversationStore(database).list())} chats with {messages} messages"
        in database.notices[0]
    )
    database.close()
    again = open_conversations(path)
    assert again.notices == ()
    again.close()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("what", ["schema", "header", "end", "roots"])
def test_the_worst_places(tmp_path: Path, whole: tuple[Path, Texts], what: str) -> None:
    path, texts = tmp_path / "a.sqlite3", whole[1]
    with sqlite3.connect(whole[0]) as connection:
        roots = [
            row[0] for row in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")
        ]
    connection.close()
    pages = {"schema": [1], "header": [], "end": [], "roots": [page for page in roots if page > 1]}[what]
    damaged(whole[0], path, pages, 100 if what == "schema" else 0)
    data = bytearray(path.read_bytes())
    if what == "header":
        data[:100] = bytes(100)
    if what == "end":
        del data[len(data) * 2 // 3 :]
    path.write_bytes(data)
    database, messages = opened(path, texts)
    assert messages >= (0.4 if what == "end" else 0.95) * len(texts)
    if what in ("schema", "header"):
        assert {row.title for row in ConversationStore(database).list()} >= {
            f"Talk {number}" for number in range(1, 60, 7)
        }
    database.close()


def test_lost_conversations_and_parents_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    store = ConversationStore(database)
    talk = store.create("gone").id
    ids: list[int] = []
    for text in ("the first question", "an answer", "the second question"):
        ids.append(store.add_message(talk, ids[-1] if ids else None, "user", text).id)
    database.execute("PRAGMA foreign_keys = OFF")
    database.execute("DELETE FROM conversations")
    database.execute("DELETE FROM messages WHERE id = ?", (ids[1],))
    database.execute("UPDATE messages SET stats = '{broken' WHERE id = ?", (ids[2],))
    database.close()
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - PAGE)
    database = open_conversations(path)
    store = ConversationStore(database)
    assert [row.title for row in store.list()] == ["the first question"]
    path_shown = store.path(talk)
    assert [(message.id, message.parent_id, message.stats) for message in path_shown] == [
        (ids[0], None, {}),
        (ids[2], ids[0], {}),
    ]
    database.close()


def test_the_log_is_read(tmp_path: Path, whole: tuple[Path, Texts]) -> None:
    source = tmp_path / "live.sqlite3"
    shutil.copyfile(whole[0], source)
    database = open_conversations(source)
    store = ConversationStore(database)
    talk = store.create("Only in the log").id
    text = "written just before " * 30
    message = store.add_message(talk, None, "user", text).id
    path = tmp_path / "a.sqlite3"
    damaged(source, path, [1])
    shutil.copyfile(source.with_name("live.sqlite3-wal"), tmp_path / "a.sqlite3-wal")
    rows = [values for rowid, values in leaf_rows(path) if rowid == message and len(values) == 13]
    assert text in [values[4] for values in rows]
    database.close()


def test_deleted_messages_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    store = ConversationStore(database)
    kept, gone = store.create("Kept").id, store.create("Gone").id
    for number in range(200):
        store.add_message(gone, None, "user", f"private {number} " * 40)
        store.add_message(kept, None, "user", f"public {number} " * 40)
    database.execute("DELETE FROM conversations WHERE id = ?", (gone,))
    database.close()
    damaged(path, path, [1], 100)
    database = open_conversations(path)
    assert database.execute("SELECT count(*) FROM messages WHERE text LIKE 'public%'").fetchone()[0] > 150
    assert database.execute("SELECT count(*) FROM messages WHERE text LIKE 'private%'").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_never_raise(tmp_path: Path, whole: tuple[Path, Texts], seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(whole[0].read_bytes()[: PAGE * 60])
    for _ in range(draw.choice((30, 3000))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    (tmp_path / "a.sqlite3").write_bytes(data)
    assert sum(1 for _ in leaf_rows(tmp_path / "a.sqlite3")) >= 0
    database = open_conversations(tmp_path / "a.sqlite3")
    assert len(database.notices) == 1
    for row in ConversationStore(database).list():
        assert row.id > 0
    database.close()


@pytest.mark.slow
def test_a_large_file_is_checked_on_request(
    tmp_path: Path, whole: tuple[Path, Texts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CHECKED_ON_OPENING", 0)
    path, texts = tmp_path / "a.sqlite3", whole[1]
    with sqlite3.connect(whole[0]) as connection:
        leaf = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' LIMIT 1 OFFSET 9"
        ).fetchone()[0]
    connection.close()
    damaged(whole[0], path, [leaf])
    database = open_conversations(path)  # not read on opening, and so not noticed
    assert database.notices == ()
    with pytest.raises(Damaged, match="Restart Inglenook"):
        database.execute("SELECT text FROM messages").fetchall()
    assert check_file(path, lambda: True) == ""
    assert check_file(path) != ""
    database.close()
    request_check(path)
    database, messages = opened(path, texts)
    assert messages > 0.9 * len(texts)
    database.close()
    assert check_file(path) == ""


@pytest.mark.slow
def test_a_large_file_without_its_end_is_noticed(
    tmp_path: Path, whole: tuple[Path, Texts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CHECKED_ON_OPENING", 0)
    path = tmp_path / "a.sqlite3"
    data = whole[0].read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    database, messages = opened(path, whole[1])
    assert messages > 0
    database.close()


@pytest.mark.slow
def test_a_file_that_was_closed_cleanly_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sqlite3"
    texts = build(path)
    assert known_intact(path)
    checked: list[Path] = []
    check = connecting._check
    monkeypatch.setattr(
        connecting, "_check", lambda connection, file: checked.append(file) or check(connection, file)
    )
    database = open_conversations(path)
    ConversationStore(database).create("Another")
    # closed after the first one: the log is merged by a connection that has checked nothing
    other = Database.second(path)
    database.close()
    assert not known_intact(path)
    other.close()
    assert not known_intact(path)
    assert not checked
    database = open_conversations(path)
    assert checked == [path]
    database.close()
    database = open_conversations(path)
    assert checked == [path]
    database.close()
    request_check(path)
    open_conversations(path).close()
    assert checked == [path] * 2
    assert known_intact(path)
    size = path.stat().st_size
    damaged(path, path, [9])  # the same size, but written to: no longer trusted
    assert path.stat().st_size == size
    database, messages = opened(path, texts)
    assert checked == [path] * 3
    assert messages > 0.9 * len(texts)
    database.close()


def test_a_second_closing_does_not_vouch_for_what_happened_since_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    database.close()
    assert known_intact(path)
    with path.open("ab") as file:
        file.write(b"written by another program")
    database.close()
    assert not known_intact(path)


@pytest.mark.slow
def test_a_file_that_was_not_closed_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    build(path)
    database = open_conversations(path)
    ConversationStore(database).create("In the log")
    assert not known_intact(path)
    copy = tmp_path / "b.sqlite3"
    for suffix in ("", "-wal", ".whole"):  # like after a kill -9
        shutil.copy2(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
    assert not known_intact(copy)
    database.close()
    path.with_name(path.name + ".whole").write_bytes(b"\xff")
    assert not known_intact(path)
