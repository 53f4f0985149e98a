"""Backups: tiers and limits, made while the program writes, checked, restored."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from desktop.store import backups as module
from desktop.store.backups import TIERS, Backup, Backups, prepare_restore, put_in_place
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Damaged, Database, DiskFull, StoreError
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.open import open_conversations

HOUR, DAY = 3600, 86_400
NOW = 1_800_000_000


def fill(store: ConversationStore, count: int) -> None:
    for number in range(count):
        store.add_message(store.create(f"Talk {number}").id, None, "user", "some words " * 200)


def names(backups: Backups) -> list[str]:
    return [backup.path.name for backup in backups.list()]


def test_due_after_an_hour_if_something_was_written(store: ConversationStore, database: Database) -> None:
    backups = Backups(database.path)
    assert backups.due()
    now = time.time()
    made = backups.make(now)
    assert isinstance(made, Backup)
    assert backups.list() == (Backup(made.path, float(int(now)), made.size),)
    store.create("later")
    assert not backups.due(now + HOUR - 60)
    assert backups.due(now + HOUR + 60)
    assert backups.due(now - 3 * HOUR)  # the clock was put back


def test_without_changes_no_copy_is_due(store: ConversationStore, database: Database) -> None:
    backups = Backups(database.path)
    store.create("x")
    database.close()
    backups.make(time.time() + 5)
    assert not backups.due(time.time() + 10 * DAY)


def test_tiers(store: ConversationStore, database: Database) -> None:
    backups = Backups(database.path)
    for hour in range(24 * 40):  # forty days of an hourly copy each, the real one only at the end
        made = Backups(database.path).folder / time.strftime(
            "conversations-%Y%m%d-%H%M%S.sqlite3", time.gmtime(NOW + hour * HOUR)
        )
        made.parent.mkdir(exist_ok=True)
        made.write_bytes(b"x")
    now = NOW + 24 * 40 * HOUR
    assert backups.make(now) is not None
    ages = [now - backup.made_at for backup in backups.list()]
    assert ages[:6] == [0, *(hour * HOUR for hour in range(1, 6))]
    assert 6 <= len([age for age in ages if age > 5 * HOUR]) <= 10
    assert 2 * 7 * DAY < ages[-1] < 5 * 7 * DAY
    kept = backups.kept()
    assert {kept[backup.path] for backup in backups.list()} == {tier.name for tier in TIERS}
    backups.make(now + 1)
    assert len(backups.list()) == len(ages)  # the same hour has one


def test_the_folder_is_bounded(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 40)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = database.path.stat().st_size
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    backups = Backups(database.path)
    for day in range(12):
        backups.make(NOW + day * DAY)
        assert sum(backup.size for backup in backups.list()) <= 4 * size
    assert backups.list()[0].made_at == NOW + 11 * DAY
    assert len(backups.list()) >= 3


def test_copies_of_a_larger_file_go_when_it_has_shrunk(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    backups = Backups(database.path)
    backups.folder.mkdir()
    for day in range(2):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(NOW + day * DAY))
        with (backups.folder / f"conversations-{stamp}.sqlite3").open("wb") as copy:
            copy.truncate(64 << 20)
    made = backups.make(NOW + 2 * DAY)
    assert backups.list() == (made,)


def test_no_room(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    backups = Backups(database.path)
    monkeypatch.setattr(module, "SPARE", 1 << 62)
    with pytest.raises(DiskFull, match="not enough disk space for a backup"):
        backups.make()
    assert list(backups.folder.iterdir()) == []


def test_made_while_the_program_writes(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 400)
    monkeypatch.setattr(module, "STEP_PAGES", 8)
    backups = Backups(database.path)
    shares: list[float] = []
    made: list[Backup | None] = []
    worker = threading.Thread(target=lambda: made.append(backups.make(progress=shares.append)))
    worker.start()
    talk, written = store.list()[0].id, 0
    while worker.is_alive():
        store.add_message(talk, None, "user", "written meanwhile")
        written += 1
        time.sleep(0.001)
    worker.join()
    assert written > 20
    assert len(shares) > 50
    assert shares == sorted(shares)  # it never restarted
    assert 0 <= shares[0] < 0.1
    assert shares[-1] == 1
    assert made[0] is not None
    copy = open_conversations(made[0].path)
    titles = [row.title for row in ConversationStore(copy).list()]
    copy.close()
    assert sorted(titles) == sorted(f"Talk {number}" for number in range(400))


def test_cancelled(store: ConversationStore, database: Database) -> None:
    fill(store, 5)
    backups = Backups(database.path)
    assert backups.make(cancelled=lambda: True) is None
    assert list(backups.folder.iterdir()) == []


def test_a_damaged_file_is_not_copied_over_good_ones(store: ConversationStore, database: Database) -> None:
    fill(store, 50)
    backups = Backups(database.path)
    good = backups.make(NOW)
    database.close()
    data = bytearray(database.path.read_bytes())
    for page in range(6, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xa5" * 100
    database.path.write_bytes(data)
    with pytest.raises(Damaged, match="Restart Inglenook to recover everything"):
        backups.make(NOW + DAY)
    assert backups.list() == (good,)
    assert database.path.with_name(database.path.name + ".check").exists()
    again = open_conversations(database.path)
    assert "damaged" in again.notices[0]
    again.close()
    assert not database.path.with_name(database.path.name + ".check").exists()


def test_restored(store: ConversationStore, database: Database) -> None:
    store.create("in the copy")
    backups = Backups(database.path)
    made = backups.make()
    assert made is not None
    store.create("only later")
    database.close()
    aside = put_in_place(prepare_restore(made.path, database.path), database.path)
    again = open_conversations(database.path)
    assert [row.title for row in ConversationStore(again).list()] == ["in the copy"]
    again.close()
    assert aside is not None
    before = open_conversations(aside)
    assert [row.title for row in ConversationStore(before).list()] == ["only later", "in the copy"]
    before.close()


def test_a_damaged_copy_is_not_restored(store: ConversationStore, database: Database, tmp_path: Path) -> None:
    store.create("kept")
    database.close()
    (tmp_path / "bad.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="damaged"):
        prepare_restore(tmp_path / "bad.sqlite3", database.path)
    with pytest.raises(StoreError, match="cannot replace"):
        prepare_restore(tmp_path / "none.sqlite3", database.path)
    again = open_conversations(database.path)
    assert [row.title for row in ConversationStore(again).list()] == ["kept"]
    again.close()


def test_other_files_in_the_folder_are_left_alone(store: ConversationStore, database: Database) -> None:
    backups = Backups(database.path)
    backups.folder.mkdir()
    for name in ("conversations-mine.sqlite3", "notes.txt"):
        (backups.folder / name).write_text("x")
    backups.make()
    assert len(names(backups)) == 1
    assert (backups.folder / "notes.txt").exists()
    assert (backups.folder / "conversations-mine.sqlite3").exists()


def emptied(backups: Backups, *ages: int, size: int = 1) -> list[Path]:
    """Files named as copies of these ages in seconds, all zeros."""
    backups.folder.mkdir(exist_ok=True)
    made = []
    for age in ages:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(NOW - age))
        made.append(backups.folder / f"conversations-{stamp}.sqlite3")
        with made[-1].open("wb") as copy:
            copy.truncate(size)
    return made


def test_the_latest_of_each_hour_day_and_week_is_kept(database: Database) -> None:
    """`NOW` is 08:00 on a Friday, and the weeks begin on Thursdays, as 1970 did."""
    backups = Backups(database.path)
    hours = emptied(backups, *(60 + hour * HOUR for hour in range(8)))
    days = emptied(backups, *(60 + day * DAY for day in range(1, 40)))
    kept = backups.kept(NOW)
    assert [path in kept for path in hours] == [True] * 6 + [False] * 2
    assert [kept[path] for path in hours[1:6]] == ["hourly"] * 5
    places = {name: [place for place, path in enumerate(days) if kept.get(path) == name] for name in
              ("daily", "weekly")}  # fmt: skip
    assert places == {"daily": [0, 2, 3, 4, 5], "weekly": [1, 8, 15]}  # each of a Wednesday
    assert kept[hours[0]] == "weekly"  # the latest counts for all three
    assert len(kept) == 6 + 5 + 3


def test_a_copy_of_the_future_replaces_none_and_is_not_the_latest(database: Database) -> None:
    backups = Backups(database.path)
    earlier, later = emptied(backups, 60, -60)
    assert backups.list()[0].path == later
    found = backups.latest(NOW)
    assert found is not None
    assert found.path == earlier
    assert backups.kept(NOW)[earlier] == "weekly"
    assert backups.kept(NOW + 120)[later] == "weekly"


def test_room_is_made_before_a_copy_and_not_by_the_longest_kept(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups = Backups(database.path)
    size = database.path.stat().st_size
    week, day, hour = emptied(backups, 10 * DAY, 2 * DAY, 2 * HOUR, size=size)
    latest = emptied(backups, HOUR, size=size)[0]
    monkeypatch.setattr(module, "MOST_TIMES", 0)
    monkeypatch.setattr(module.time, "time", lambda: float(NOW))
    there: list[list[Path]] = []
    for most, expected in ((5, [week, day, hour, latest]), (4, [week, day, latest]), (1, [latest])):
        monkeypatch.setattr(module, "MOST_BYTES", most * size)
        backups.make(NOW, cancelled=lambda: there.append(sorted(backups.folder.glob("*3"))) or True)
        assert there[-1] == sorted(expected)


def test_what_a_killed_copy_left_is_removed(database: Database) -> None:
    backups = Backups(database.path)
    backups.folder.mkdir()
    for name in ("conversations-20200101-000000.sqlite3.part", "conversations-2.sqlite3.part-wal"):
        (backups.folder / name).write_bytes(b"x")
    made = backups.make()
    assert made is not None
    assert list(backups.folder.iterdir()) == [made.path]


def test_a_copy_with_a_bad_page_is_not_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_file", lambda _path, _cancelled: "a page is bad")
    backups = Backups(database.path)
    with pytest.raises(Damaged, match=r"is damaged \(a page is bad\)\. Restart .* Earlier backups are not"):
        backups.make()
    assert list(backups.folder.iterdir()) == []
    assert database.path.with_name(database.path.name + ".check").exists()


def test_a_folder_that_cannot_be_used_is_named(database: Database, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"^No backup can be saved in .*file \("):
        Backups(database.path, tmp_path / "file").make()
    gone = Backups(tmp_path / "gone" / "conversations.sqlite3")
    with pytest.raises(StoreError, match="No such file or directory"):
        gone.make()
    assert not gone.folder.exists()
    assert not gone.due()


def test_a_reply_that_ran_is_a_stopped_one_in_the_restored_chats(
    store: ConversationStore, database: Database
) -> None:
    chat = store.create("Talk").id
    store.add_message(chat, None, "assistant", "Half of a", "running")
    made = Backups(database.path).make()
    assert made is not None
    database.close()
    part = prepare_restore(made.path, database.path)
    assert put_in_place(part, database.path) is not None
    assert not list(part.parent.glob(f"{part.name}*"))
    again = open_conversations(database.path)
    assert again.execute("SELECT text, state FROM messages").fetchall() == [("Half of a", "stopped")]
    again.close()


def test_a_copy_of_an_earlier_version_is_brought_up_to_date_without_a_trace(
    database: Database, tmp_path: Path
) -> None:
    old = Database(tmp_path / "old.sqlite3", MIGRATIONS[:-1])
    ConversationStore(old).create("Old talk")
    old.close()
    database.close()
    before = {path.name for path in tmp_path.iterdir()}
    part = prepare_restore(tmp_path / "old.sqlite3", database.path)
    assert {path.name for path in tmp_path.iterdir()} - before == {part.name, f"{part.name}.whole"}
    again = Database(part)
    assert [row.title for row in ConversationStore(again).list()] == ["Old talk"]
    again.close()


def test_a_copy_that_cannot_be_put_in_place_leaves_the_chats(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("kept")
    database.close()
    part = database.path.with_name("part")
    part.write_bytes(b"x")

    def refused(_source: Path, _target: Path) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(module.os, "replace", refused)
    with pytest.raises(StoreError, match=r"^The backup cannot replace .* \(Permission denied\)\.$"):
        put_in_place(part, database.path)
    monkeypatch.undo()
    assert not part.exists()
    again = open_conversations(database.path)
    assert [row.title for row in ConversationStore(again).list()] == ["kept"]
    again.close()


def test_where_no_file_was_none_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"x")
    assert put_in_place(tmp_path / "part", tmp_path / "chats.sqlite3") is None
    assert [path.name for path in tmp_path.iterdir()] == ["chats.sqlite3"]


def test_chats_in_the_trash_do_not_count(store: ConversationStore, database: Database) -> None:
    for title in ("one", "two", "three"):
        store.create(title)
    store.delete(store.list()[0].id)
    made = Backups(database.path).make()
    assert made is not None
    assert module.count_conversations(made.path) == 2
    assert module.count_conversations(made.path.with_name("none.sqlite3")) == -1
