"""What is found wrong with the file of chats while it is open, and where it goes then."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.trash import empty_trash
from desktop.store.database import connecting, errors
from desktop.store.database.connecting import check_file
from desktop.store.database.data_folder import set_aside
from desktop.store.database.database import Damaged, Database, DiskFull, Gone, StoreError
from desktop.store.database.errors import is_damage, is_locked, translated
from desktop.store.database.integrity_marker import check_requested, known_intact
from desktop.store.database.open import open_conversations


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed file of some chats, of a dozen pages or more."""
    found = tmp_path / "a.sqlite3"
    database = open_conversations(found)
    store = ConversationStore(database)
    for number in range(20):
        store.add_message(store.create(f"Talk {number}").id, None, "user", "some words " * 300)
    database.close()
    return found


def harm(path: Path) -> None:
    """Overwrite every page of the file but the first, which has the schema's root."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def test_a_check_says_what_is_wrong_and_has_the_next_start_look(path: Path, tmp_path: Path) -> None:
    assert check_file(path) == ""
    assert not check_requested(path)
    harm(path)
    assert check_file(path, lambda: True) == ""
    assert not check_requested(path)
    assert check_file(path) != ""
    assert check_requested(path)
    (tmp_path / "text").write_bytes(b"this is no database at all, only some text\n" * 200)
    assert check_file(tmp_path / "text") == "file is not a database"
    with pytest.raises(StoreError, match="cannot be read or saved"):
        check_file(tmp_path / "gone.sqlite3")
    assert not (tmp_path / "gone.sqlite3").exists()


def test_a_check_can_be_cancelled_in_the_middle(path: Path) -> None:
    asked: list[int] = []

    def second_time() -> bool:
        asked.append(1)
        return len(asked) > 1

    database = sqlite3.connect(path)
    database.execute("CREATE TABLE many (value INTEGER)")
    database.execute(
        "WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 30000) "
        "INSERT INTO many SELECT n FROM counted"
    )
    database.commit()
    database.close()
    assert check_file(path, second_time) == ""
    assert len(asked) > 1
    assert not check_requested(path)


def test_a_large_file_without_its_end_is_noticed_when_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CHECKED_ON_OPENING", 0)
    shutil.copy(path, path.with_name("whole.sqlite3"))
    path.with_name("a.sqlite3-wal").touch()  # an empty log holds no part of it
    os.truncate(path, path.stat().st_size - 100)  # SQLite does not notice a part of a page
    with pytest.raises(Damaged, match="the end of the file is missing"):
        Database(path)
    whole = Database(path.with_name("whole.sqlite3"))
    whole.close()
    assert not known_intact(whole.path)  # its pages were not read


@pytest.mark.parametrize(
    "fetch",
    [
        lambda rows: [rows.fetchone() for _ in range(20)],
        lambda rows: rows.fetchmany(20),
        lambda rows: rows.fetchall(),
        list,
    ],
)
def test_rows_on_bad_pages_are_reported_however_they_are_fetched(
    path: Path, fetch: Callable[[sqlite3.Cursor], object]
) -> None:
    database = Database(path)
    with path.open("r+b") as file:
        file.seek(path.read_bytes().rfind(b"some words") // 4096 * 4096)  # the page of a late message
        file.write(b"\xa5" * 4096)
    database.execute("PRAGMA shrink_memory")
    rows = database.execute("SELECT text FROM messages ORDER BY id")  # the first one is read at once
    assert not check_requested(path)
    with pytest.raises(Damaged, match="Restart Inglenook to recover"):
        fetch(rows)
    assert check_requested(path)
    database.close()


def test_nothing_is_written_to_a_file_that_is_no_longer_in_its_place(path: Path, tmp_path: Path) -> None:
    database = Database(path)
    store = ConversationStore(database)
    path.rename(tmp_path / "moved.sqlite3")
    assert not database.in_place
    with pytest.raises(Gone, match=rf"no longer in {tmp_path}"):
        store.create("lost")
    assert len(store.list()) == 20
    shutil.copy(tmp_path / "moved.sqlite3", path)  # another file of this name
    with pytest.raises(Gone):
        store.create("lost")
    path.unlink()
    (tmp_path / "moved.sqlite3").rename(path)
    store.create("kept")
    assert len(store.list()) == 21
    path.rename(tmp_path / "moved.sqlite3")
    shutil.copy(tmp_path / "moved.sqlite3", path)
    database.close()
    assert not known_intact(path)  # nobody has checked the other one


def test_a_move_to_where_nothing_can_be_written_changes_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    database = Database(path)
    with pytest.raises(StoreError, match=r"^Nothing can be saved in .*file \(.*\)\. Choose another folder"):
        database.move_to(tmp_path / "file" / "a.sqlite3")
    assert (database.path, database.in_place) == (path, True)
    ConversationStore(database).create("here")
    database.close()


def test_a_file_is_set_aside_with_its_log_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    path, found = tmp_path / "a.sqlite3", []
    for text in ("one", "two", "three"):
        for suffix in ("", "-wal"):
            path.with_name(path.name + suffix).write_text(text + suffix)
        found.append(set_aside(path, "before-restore"))
    assert [each.name.removeprefix("a.sqlite3.") for each in found] == [
        f"before-restore-20260102-030405{number}" for number in ("", "-2", "-3")
    ]
    assert [each.read_text() for each in found] == ["one", "two", "three"]
    assert [each.with_name(each.name + "-wal").read_text() for each in found] == [
        "one-wal", "two-wal", "three-wal",
    ]  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 6


def failed(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("odd")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(("code", "room", "kind", "words"), [
    (sqlite3.SQLITE_FULL, 1 << 40, DiskFull, "not enough disk space"),
    (sqlite3.SQLITE_IOERR_WRITE, 0, DiskFull, "not enough disk space"),
    (sqlite3.SQLITE_IOERR_WRITE, 1 << 40, StoreError, r"cannot be read or saved \(odd\)"),
    (sqlite3.SQLITE_READONLY_DIRECTORY, 0, StoreError, "read-only"),
    (sqlite3.SQLITE_BUSY_SNAPSHOT, 0, StoreError, "Another program has locked"),
    (sqlite3.SQLITE_CORRUPT_INDEX, 0, Damaged, "is damaged"),
    (sqlite3.SQLITE_NOTADB, 0, Damaged, "is damaged"),
])  # fmt: skip
def test_each_error_of_the_file_has_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, room: int, kind: type[StoreError], words: str
) -> None:
    def usage(folder: Path) -> object:
        assert folder == tmp_path
        return type("Usage", (), {"free": room})

    monkeypatch.setattr(errors.shutil, "disk_usage", usage)
    error = failed(code)
    with pytest.raises(StoreError, match=words) as raised, translated(tmp_path / "a.sqlite3"):
        raise error
    assert type(raised.value) is kind
    assert is_damage(error) == (kind is Damaged) == check_requested(tmp_path / "a.sqlite3")
    assert is_locked(raised.value) == is_locked(error) == ("locked" in words)


def test_a_damaged_file_of_which_nothing_can_be_read_is_kept_and_said_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_damaged: Path, _database: Database) -> None:
        raise StoreError("no page")

    monkeypatch.setattr("desktop.store.database.recovery.recover", unreadable)
    harm(path)
    database = open_conversations(path)
    assert database.set_aside is not None
    assert database.set_aside.exists()
    (notice,) = database.notices
    assert "nothing could be read from it (no page)" in notice
    assert database.set_aside.name in notice
    ConversationStore(database).create("new")
    database.close()
    assert not check_requested(path)


def test_what_was_deleted_for_good_is_overwritten(path: Path) -> None:
    database = Database(path)
    store = ConversationStore(database)
    for text in ("a short one that stays", "a short one that goes"):
        store.add_message(store.create().id, None, "user", text)
    store.delete(store.list()[0].id)
    assert list(empty_trash(database))
    database.close()
    data = path.read_bytes()
    assert b"a short one that stays" in data
    assert b"a short one that goes" not in data
