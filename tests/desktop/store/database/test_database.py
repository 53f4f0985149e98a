"""Opening: migrations with a backup before them, newer and damaged files, the data folder."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database import connecting
from desktop.store.database import data_folder as data_folder_module
from desktop.store.database import database as database_module
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import Database, StoreError
from desktop.store.database.errors import Damaged
from desktop.store.database.integrity_marker import known_intact, note_intact, request_check
from desktop.store.database.migrations import MIGRATIONS, conversations_and_messages
from desktop.store.database.open import open_conversations
from desktop.store.search.indexing import index_step

GOLDEN = Path(__file__).parents[3] / "golden" / "conversations.sql"
"""The schema of a file of conversations, a statement a line."""


def add_a_colour(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE conversations ADD COLUMN colour TEXT NOT NULL DEFAULT 'none'")


def break_half_way(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE half (id INTEGER)")
    connection.execute("INSERT INTO nowhere VALUES (1)")


def applied(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("SELECT name FROM migrations ORDER BY number")]
    finally:
        connection.close()


def fill(path: Path, count: int = 50) -> None:
    database = open_conversations(path)
    store = ConversationStore(database)
    for number in range(count):
        store.add_message(store.create().id, None, "user", f"Question {number} " + "lorem ipsum " * 50)
    database.close()


def test_pragmas(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    names = ("journal_mode", "foreign_keys", "synchronous", "busy_timeout", "journal_size_limit")
    found = {name: database.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    database.close()
    assert found == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": 1,
        "busy_timeout": 80,
        "journal_size_limit": 64 << 20,
    }


def test_migrations_run_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    for _ in range(2):
        open_conversations(path).close()
    assert applied(path) == [step.__name__ for step in MIGRATIONS]
    with contextlib.closing(sqlite3.connect(path)) as connection:  # as in the files of every version
        numbers = [number for (number,) in connection.execute("SELECT number FROM migrations")]
    assert sorted(numbers) == list(range(1, len(MIGRATIONS) + 1))
    # a fresh file needs no copy
    assert {file.name for file in tmp_path.iterdir()} == {"a.sqlite3", "a.sqlite3.whole"}


def schema(path: Path) -> list[str]:
    """The statements of all tables, indexes and triggers, in the order of their names, a line each; without
    the tables that FTS5 makes for itself, which differ by its version.
    """
    connection = sqlite3.connect(path)
    try:
        return [
            " ".join(sql.split()) + ";"
            for (sql,) in connection.execute(
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND "
                "(type <> 'table' OR name NOT GLOB 'message_words_*') ORDER BY type, name"
            )
        ]
    finally:
        connection.close()


def test_the_steps_make_the_released_schema(tmp_path: Path) -> None:
    """A step that has been released never changes: files would differ by the version that made them. A new
    step adds its lines to the golden file.
    """
    path = tmp_path / "a.sqlite3"
    open_conversations(path).close()
    assert schema(path) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_an_old_file_has_the_schema_of_a_new_one_once_its_search_is_indexed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path, (conversations_and_messages,))
    database.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Old', 1, 1)")
    database.execute(
        "INSERT INTO messages (conversation_id, role, text, state, created_at) "
        "VALUES (1, 'user', 'an ancient question', 'complete', 1)"
    )
    database.close()
    database = open_conversations(path)
    assert any(index_step(database).done for _ in range(100))
    database.close()
    assert schema(path) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_an_old_file_is_copied_and_migrated(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path, (conversations_and_messages,))
    database.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Old', 1, 1)")
    database.execute(
        "INSERT INTO messages (conversation_id, role, text, state, created_at) VALUES (1, 'user', 'an "
        "ancient question', 'complete', 1)"
    )
    database.close()
    copy = tmp_path / "a.before-full_text_search.sqlite3"
    copy.write_bytes(b"half of a copy that a power cut left")
    database = open_conversations(path, (*MIGRATIONS, add_a_colour))
    store = ConversationStore(database)
    assert [hit.snippet for hit in store.search("ancient")] == ["an ancient question"]
    assert database.execute("SELECT colour FROM conversations").fetchone()[0] == "none"
    database.close()
    assert applied(copy) == ["conversations_and_messages"]
    assert applied(path) == [step.__name__ for step in (*MIGRATIONS, add_a_colour)]


def test_a_large_file_is_copied_before_a_migration_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(connecting, "CHECKED_ON_OPENING", 0)
    path = tmp_path / "a.sqlite3"
    fill(path, 3)
    open_conversations(path, (*MIGRATIONS, add_a_colour)).close()
    copy = open_conversations(tmp_path / "a.before-add_a_colour.sqlite3")
    assert len(ConversationStore(copy).list()) == 3
    copy.close()


def test_an_empty_log_beside_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    path, log = tmp_path / "a.sqlite3", tmp_path / "a.sqlite3-wal"
    fill(path, 3)
    log.touch()
    note_intact(path)
    assert known_intact(path)
    log.write_bytes(b"part")
    assert not known_intact(path)
    path.with_name("a.sqlite3.whole").unlink()
    note_intact(path)
    log.unlink()
    assert not known_intact(path)  # nothing is said of a file while a part of it is elsewhere


def test_a_failing_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    fill(path, 3)
    with pytest.raises(StoreError, match="nowhere"):
        open_conversations(path, (*MIGRATIONS, break_half_way))
    database = open_conversations(path)
    assert database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone()[0] == 0
    assert len(ConversationStore(database).list()) == 3
    database.close()


def test_a_newer_file_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    open_conversations(path, (*MIGRATIONS, add_a_colour)).close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer version of Inglenook.*add_a_colour.*Update"):
        open_conversations(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", ["text", "page", "cut"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "a.sqlite3"
    fill(path, 200)
    data = bytearray(path.read_bytes())
    if harm == "text":
        data = bytearray(b"this is no database at all, only some text\n" * 200)
    elif harm == "page":
        for start in range(4096 * 3, len(data) - 4096, 4096):
            data[start : start + 2048] = b"\xa5" * 2048
    else:
        del data[len(data) * 4 // 5 :]
    path.write_bytes(data)
    database = open_conversations(path)
    titles = {row.title for row in ConversationStore(database).list()}
    assert (not titles) if harm == "text" else 0 < len(titles) < 200
    assert all(title.startswith("Question") or title == "Recovered chat" for title in titles)
    assert len(database.notices) == 1
    assert "damaged" in database.notices[0]
    kept = [file for file in tmp_path.iterdir() if ".damaged-" in file.name]
    assert [file.read_bytes() for file in kept] == [bytes(data)]
    assert kept[0].name in database.notices[0]
    database.close()


@pytest.mark.parametrize("harm", ["name", "header"])
def test_damage_that_sqlite_has_no_code_for_is_recovered(tmp_path: Path, harm: str) -> None:
    """It quotes the name of a table that is no UTF-8 any more, or says that it does not know the file."""
    path = tmp_path / "a.sqlite3"
    fill(path, 20)
    data = bytearray(path.read_bytes())
    if harm == "name":
        data = data.replace(b"tableconversationsconversations", b"tableconvers\xfctionsconversations")
        data = data.replace(b"CREATE TABLE conversations (", b"CREATE T\xfcBLE conversations (")
    else:
        data[44:48] = b"\0\0\0\x09"  # the number of the schema's format
    assert data != path.read_bytes()
    path.write_bytes(data)
    database = open_conversations(path)
    assert len(database.notices) == 1
    assert "damaged" in database.notices[0]
    database.close()


def test_a_bad_byte_in_a_text_hides_no_message(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    store = ConversationStore(database)
    number = store.create("Bread").id
    store.add_message(number, None, "user", "one word, two words")
    database.close()
    path.write_bytes(path.read_bytes().replace(b"one word, two", b"one w\xffrd, two"))
    database = open_conversations(path)
    (message,) = ConversationStore(database).path(number)
    assert message.text == "one w\ufffdrd, two words"
    database.close()


def test_damage_of_an_index_is_recovered_once_it_was_met(tmp_path: Path) -> None:
    """A quick check does not compare indexes: after each restart the same error came again."""
    path = tmp_path / "a.sqlite3"
    fill(path, 20)
    where = "WHERE type = 'index' AND tbl_name = 'messages' AND sql IS NOT NULL"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT * FROM sqlite_master {where}").fetchall()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"DELETE FROM sqlite_master {where}")
        connection.commit()
    with contextlib.closing(sqlite3.connect(path)) as connection:  # which knows no index that it would change
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE messages SET conversation_id = 1 WHERE conversation_id = 2")
        connection.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", found)
        connection.commit()
    open_conversations(path).close()
    request_check(path)
    database = open_conversations(path)
    assert len(database.notices) == 1
    assert len(ConversationStore(database).list()) == 20
    database.close()


def test_a_file_that_lost_all_it_had_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    path.touch()  # a first start that was ended at once
    database = open_conversations(path)
    assert database.notices == ()
    database.close()
    os.truncate(path, 0)
    database = open_conversations(path)
    (notice,) = database.notices
    assert "was empty" in notice
    assert "“Restore from a backup” in the File menu" in notice
    ConversationStore(database).create()
    database.close()
    database = open_conversations(path)
    assert database.notices == ()
    database.close()


def test_a_folder_in_the_way_raises_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite3").mkdir()
    with pytest.raises(StoreError, match=r"cannot be read or saved .*Check"):
        open_conversations(tmp_path / "a.sqlite3")


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    store = ConversationStore(database)

    def fail_half_way() -> None:
        with database.transaction():
            store.create("lost")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_half_way()
    assert store.list() == ()
    store.create("kept")
    assert [row.title for row in store.list()] == ["kept"]
    database.close()


def test_a_move_goes_nowhere_if_the_copy_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    store.create("Before")
    there = tmp_path / "new" / "a.sqlite3"
    monkeypatch.setattr(database_module, "check_file", lambda part: f"{part.stat().st_size > 0}")
    with pytest.raises(Damaged, match=r"can no longer be read \(True\)"):
        database.move_to(there)
    assert (list(there.parent.iterdir()), database.path) == ([], tmp_path / "a.sqlite3")
    monkeypatch.undo()
    database.move_to(there)
    assert ([path.name for path in there.parent.iterdir() if "-" not in path.name], database.path) == (
        ["a.sqlite3"], there,
    )  # fmt: skip
    store.create("After")
    assert {row.title for row in store.list()} == {"Before", "After"}
    with pytest.raises(StoreError, match="already contains chats"):
        database.move_to(there)
    database.close()


def waits(database: Database) -> int:
    """Milliseconds that a connection waits for a lock."""
    return int(database.execute("PRAGMA busy_timeout").fetchone()[0])


def test_a_database_locked_by_another_program(tmp_path: Path) -> None:
    """The window stood still for five seconds, and in a reply again five times a second."""
    path = tmp_path / "a.sqlite3"
    database = open_conversations(path)
    store = ConversationStore(database)
    chat = store.create("before").id
    reply = store.add_message(chat, None, "assistant", "", "running").id
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    for again in range(3):
        with pytest.raises(StoreError, match="locked"):
            store.create("now")
        with pytest.raises(StoreError, match="locked"):
            store.checkpoint(reply, "so far")
        assert store.get(chat).title == "before"
        assert waits(database) == 0, again
    assert time.monotonic() - began < 2
    second = Database.second(path)
    assert waits(second) == 5000
    second.close()
    other.execute("ROLLBACK")
    other.close()
    assert store.create("then").title == "then"
    assert waits(database) == 80
    database.close()
    database.reopen()
    assert waits(database) == 80
    database.close()


class SlowDisk(Database):
    """Takes 0.3 s for each COMMIT, as a large one may on a slow disk."""

    commits = threading.Event()

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.commits.set()
            time.sleep(0.3)
        return super().execute(sql, values)


def test_a_slow_commit_of_this_program_is_waited_for(tmp_path: Path) -> None:
    """The window said that another program has locked the file."""
    database = open_conversations(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    store.create("before")

    def change() -> None:
        second = SlowDisk.second(database.path)
        with second.transaction():
            second.execute("UPDATE conversations SET title = 'changed'")
        second.close()

    for write in (lambda: store.create("now"), lambda: store.rename(1, "again")):
        SlowDisk.commits.clear()
        thread = threading.Thread(target=change)
        thread.start()
        assert SlowDisk.commits.wait(10)
        write()
        assert waits(database) == 80
        thread.join()
    assert [store.get(number).title for number in (1, 2)] == ["again", "changed"]
    database.close()


def test_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_DATA", str(tmp_path / "from-environment"))
    assert data_folder() == tmp_path / "from-environment"
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert (tmp_path / "given").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be created"):
        data_folder(tmp_path / "file" / "below")
    monkeypatch.delenv("INGLENOOK_DATA")
    assert data_folder().name == "inglenook"


@pytest.mark.parametrize(
    ("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, False)]
)
def test_space_is_asked_for_only_where_a_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, full: bool
) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(data_folder_module, "private_folder", refuse)
    with pytest.raises(StoreError, match="cannot be created") as refused:
        data_folder(tmp_path / "new")
    assert os.strerror(number) in str(refused.value)
    assert ("free some disk space" in str(refused.value)) is full


@pytest.mark.slow
def test_checking_a_large_file_is_quick(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    fill(path, 2000)
    started = time.thread_time()
    open_conversations(path).close()
    assert time.thread_time() - started < 0.5


def test_half_a_surrogate_pair_is_stored_as_the_character_that_stands_for_it(tmp_path: Path) -> None:
    """No file can hold one; servers and tools send such, and nothing of their texts may be lost."""
    database = Database(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    number = store.create("a\ud83d").id
    message = store.add_message(number, None, "user", "half \udc00, whole \ud83d\ude00")
    assert store.get(number).title == "a\ufffd"
    assert store.message(message.id).text == "half \ufffd, whole \U0001f600"
    database.close()
