"""Scheduled backups: made when enabled and due, failures reported once; the check without backups."""

from __future__ import annotations

import dataclasses
import threading

from desktop.services.system.backups import EVERY_MS, BackupService
from desktop.settings import Behaviour
from desktop.store.backups import Backup
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database, StoreError
from desktop.store.database.integrity_marker import check_requested


def test_the_schedule(talking, monkeypatch) -> None:
    harness = talking
    harness.ask("Hello")
    service = BackupService(harness.session)
    made: list[object] = []
    reported: list[str] = []
    service.made.connect(made.append)
    service.trouble.connect(reported.append)
    service.timer.setInterval(1)
    harness.qtbot.waitUntil(lambda: bool(made))
    assert service.timer.interval() == EVERY_MS
    assert len(service.copies.list()) == 1

    monkeypatch.setattr("desktop.services.system.backups.check_file", lambda path, cancelled: "a page is bad")
    service.timer.setInterval(1)  # not due: no copy is made, and the recent copy was checked
    harness.qtbot.waitUntil(lambda: service.timer.interval() == EVERY_MS)
    assert harness.session.set_settings(
        dataclasses.replace(harness.session.settings(Behaviour), backups=False)
    )
    service.copies.list()[0].path.unlink()
    for _ in range(2):
        service.timer.setInterval(1)
        harness.qtbot.waitUntil(lambda: service.timer.interval() == EVERY_MS)
    harness.qtbot.waitUntil(lambda: bool(reported))
    assert service.close()
    assert reported == [
        "The file with your chats is damaged (a page is bad). Restart Inglenook to recover everything that "
        "can be read."
    ]
    assert len(made) == 1
    assert service.copies.list() == ()


def test_a_copy_that_is_damaged_changes_nothing(talking, tmp_path) -> None:
    harness = talking
    harness.ask("Hello")
    service = BackupService(harness.session)
    bad = tmp_path / "conversations-20260101-000000.sqlite3"
    bad.write_bytes(b"no database" * 1000)
    refused: list[str] = []
    service.refused.connect(refused.append)
    service.restore(bad)
    harness.qtbot.waitUntil(lambda: bool(refused))
    assert harness.texts()[0] == "Hello"
    harness.ask("Go on")
    assert service.close()
    assert not list(tmp_path.glob("*.restored*"))


def test_a_copy_is_restored_once_the_reply_being_written_has_ended(talking) -> None:
    harness = talking
    harness.ask("Hello")
    chat = harness.session.conversation
    service = BackupService(harness.session)
    made: list[Backup] = []
    restored: list[str] = []
    service.made.connect(made.append)
    service.restored.connect(restored.append)
    service.make_now()
    harness.qtbot.waitUntil(lambda: bool(made))
    harness.chat.hold = threading.Event()
    assert harness.session.submit("After the copy")
    harness.qtbot.waitUntil(lambda: len(harness.chat.requests) == 2)
    service.restore(made[0].path)
    harness.qtbot.waitUntil(lambda: bool(restored))
    assert [message.text for message in harness.store.path(chat)] == ["Hello", "Hello"]
    before = Database(harness.folder / restored[0])
    assert "After the copy" in [message.text for message in ConversationStore(before).path(chat)]
    before.close()
    assert service.close()


def test_the_copies_are_listed_with_the_number_of_their_chats(talking) -> None:
    harness = talking
    harness.ask("Hello")
    service = BackupService(harness.session)
    with harness.qtbot.waitSignal(service.made):
        service.make_now()
    broken = service.copies.folder / "conversations-20200101-000000.sqlite3"
    broken.write_bytes(b"no database")
    with harness.qtbot.waitSignal(service.listed) as listed:
        service.look()
    (rows,) = listed.args
    assert [(row.backup.path == broken, row.chats) for row in rows] == [(False, 1), (True, -1)]
    assert service.close()


def test_a_copy_that_fails_is_told_each_time_and_its_reason_once(talking, monkeypatch) -> None:
    def full(*_asked: object) -> None:
        raise StoreError("no room")

    harness = talking
    service = BackupService(harness.session)
    made: list[object] = []
    reasons: list[str] = []
    service.made.connect(made.append)
    service.trouble.connect(reasons.append)
    monkeypatch.setattr(service.copies, "make", full)
    for count in (1, 2):
        service.make_now()
        harness.qtbot.waitUntil(lambda count=count: len(made) == count)
    assert made == [None, None]
    assert reasons == ["no room"]
    assert service.close()


def test_damage_met_while_running_has_the_file_checked_at_the_next_start(talking) -> None:
    harness = talking
    harness.ask("Hello")
    path = harness.database.path
    harness.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    harness.database.execute("PRAGMA cache_size = 0")
    harness.database.execute("PRAGMA shrink_memory")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    harness.session.new_conversation()
    assert any("damaged" in sentence and "Restart Inglenook" in sentence for sentence in harness.notices())
    assert check_requested(path)
