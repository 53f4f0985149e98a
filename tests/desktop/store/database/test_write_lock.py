"""Two connections of one process: a long writer lets the other write at the next message, and otherwise never
pauses.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import RecordWriter, read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.chunked_writes import ChunkedWrites
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database, StoreError
from desktop.store.database.write_lock import WriteLock, write_lock_of
from tests.desktop.store.conversations.test_bulk_insert import m, record

WAIT_S = 60.0


def wait_until(holds: Any) -> None:
    until = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_the_lock_knows_who_waits_and_lets_others_go_first() -> None:
    lock = WriteLock()
    had: list[str] = []

    def wait() -> None:
        with lock:
            had.append("other")

    lock.wait_for_others()
    with lock, lock:  # the same thread does not wait for itself
        assert not lock.contended
        other = threading.Thread(target=wait)
        other.start()
        wait_until(lambda: lock.contended)
        assert not had
    lock.wait_for_others()
    assert not lock.contended
    with lock:
        assert had == ["other"]
    other.join()


def test_all_connections_to_a_file_share_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = write_lock_of(tmp_path / "a.sqlite3")
    assert write_lock_of(Path("a.sqlite3")) is found
    assert write_lock_of(tmp_path / "b.sqlite3") is not found
    assert write_lock_of(MEMORY) is not write_lock_of(MEMORY)


def test_no_pause_if_nobody_waits(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses were a third of the time of an import."""
    rests: list[float] = []
    here, sleep = threading.current_thread(), time.sleep

    def rest(seconds: float) -> None:
        if threading.current_thread() is here:
            rests.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", rest)
    monkeypatch.setattr("desktop.store.database.chunked_writes.STEP_S", 0.0)
    assert (
        RecordWriter(database).save(record(*(m(f"k{number}", None) for number in range(20)))).messages == 20
    )
    assert rests == []


def test_a_message_typed_during_an_import_is_written_before_the_next_one(
    database: Database, store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desktop.store.database.chunked_writes.STEP_S", 1000.0)
    chat = store.create("Mine").id
    seen: list[int] = []
    insert = RecordWriter._insert

    def importing() -> None:
        other = Database.second(database.path)

        def slow(self: RecordWriter, *values: Any) -> int:
            if len(seen) == 2:
                third.set()
                wait_until(lambda: other.write_lock.contended)
            seen.append(
                int(
                    other.execute(
                        "SELECT count(*) FROM messages WHERE conversation_id = ?", (chat,)
                    ).fetchone()[0]
                )
            )
            return insert(self, *values)

        monkeypatch.setattr(RecordWriter, "_insert", slow)
        saved.append(
            RecordWriter(other).save(record(*(m(f"k{number}", None) for number in range(6)))).conversation_id
        )
        other.close()

    saved: list[int] = []
    third = threading.Event()
    thread = threading.Thread(target=importing)
    thread.start()
    assert third.wait(WAIT_S)
    store.add_message(chat, None, "user", "Hello")
    thread.join(WAIT_S)
    assert seen == [0, 0, 0, 1, 1, 1]
    assert [message.key for message in read_whole(database, saved[0]).messages] == [
        f"k{number}" for number in range(6)
    ]


def test_a_long_write_is_kept_in_parts(
    database: Database, store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written by a due pause is there for other connections, though the write goes on."""
    other = Database.second(database.path)

    def titles() -> list[str]:
        return [title for (title,) in other.execute("SELECT title FROM conversations ORDER BY title")]

    with ChunkedWrites(database) as writes:
        monkeypatch.setattr("desktop.store.database.chunked_writes.STEP_S", 1000.0)
        store.create("A")
        writes.pause()
        assert titles() == []  # it is not due
        monkeypatch.setattr("desktop.store.database.chunked_writes.STEP_S", 0.0)
        writes.pause()
        assert titles() == ["A"]
        store.create("B")
        assert titles() == ["A"]
    assert titles() == ["A", "B"]
    other.close()


def test_the_lock_is_free_before_the_log_is_checkpointed(database: Database) -> None:
    """SQLite checkpoints within the commit, after releasing its own lock: nobody waits for the disk."""
    events: list[str] = []

    class Recording(WriteLock):
        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            events.append("free")

    database.write_lock = Recording()
    database._connection.set_trace_callback(
        lambda sql: events.append(sql.split()[0]) if not sql.startswith("--") else None
    )
    with database.transaction():
        database.execute("DELETE FROM drafts")
    database._connection.set_trace_callback(None)
    assert events[0] == "BEGIN"
    assert events[-2:] == ["free", "COMMIT"]


def test_an_error_at_the_commit_is_rolled_back(database: Database, store: ConversationStore) -> None:
    chat = store.create().id

    def rename(title: str, folder: int | None = None) -> None:
        with database.transaction():
            database.execute("PRAGMA defer_foreign_keys = ON")  # the error appears at the commit
            database.execute(
                "UPDATE conversations SET title = ?, folder_id = ? WHERE id = ?", (title, folder, chat)
            )

    with pytest.raises(StoreError, match="FOREIGN KEY"):
        rename("Third", 99)
    assert store.get(chat).title == ""
    rename("Fourth")
    assert store.get(chat).title == "Fourth"
