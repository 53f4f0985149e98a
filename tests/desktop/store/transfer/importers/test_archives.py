"""Zip archives: the directory is read once, unpacking is bounded, and files without chats are reported."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from desktop.services.transfer.transfer_report import ImportReport
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers import sources
from desktop.store.transfer.records import LeftOut, Progress
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, imported, run, shown
from tests.desktop.store.transfer.importers.test_open_webui_database import chat, made


def with_pictures(path: Path, count: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([files.chatgpt(1), files.chatgpt(2)]))
        for number in range(count):
            archive.writestr(f"file-{number:08}-photo.png", b"\x89PNG\r\n" + bytes(50))
    return path


def test_the_directory_is_read_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it once per member made the import of an export with 20,000 images quadratic."""
    path = with_pictures(tmp_path / "export.zip", 500)
    reads: list[object] = []
    real = zipfile.ZipFile._RealGetContents  # type: ignore[attr-defined]
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", lambda self: (reads.append(self), real(self))[1])
    events = run(database, path)
    assert len(imported(events)) == 2
    assert len(reads) == 1


def test_files_without_chats_are_counted_and_reported(database: Database, tmp_path: Path) -> None:
    events = run(database, with_pictures(tmp_path / "export.zip", 3))
    (reported,) = [event for event in events if isinstance(event, LeftOut)]
    assert (reported.count, reported.files) == (3, True)
    assert reported.what.startswith("Files without chats")
    report = ImportReport(files=2)
    for event in (*events, LeftOut("Tags", 2), *events):
        report = report.with_event(event, 0)
    assert [(found.count, found.files) for found in report.left_out] == [(6, True), (2, False)]


def test_it_can_be_cancelled_between_two_pictures(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []
    path = with_pictures(tmp_path / "export.zip", 50)
    monkeypatch.setattr("desktop.store.transfer.importers.report.PROGRESS_S", -1.0)
    events = run(database, path, cancel=lambda: (looks.append(None), len(looks) > 20)[1])
    assert len(imported(events)) == 2
    done = [event.done for event in events if isinstance(event, Progress)]
    assert done == sorted(done)
    assert len(set(done)) > 5  # it also reports progress between two pictures
    assert done[-1] < next(event.total for event in events if isinstance(event, Progress))


def test_damage_is_reported_for_files_with_chats(database: Database, tmp_path: Path) -> None:
    """Whether a file contains chats is known after the first one; earlier damage is reported then."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", '[{"broken": }, {"n": 1}]')
        archive.writestr("conversations.json", f'[{{"title": }}, {json.dumps(files.chatgpt(1))}]')
    events = run(database, path)
    assert len(imported(events)) == 1
    assert [event.place.partition(" (")[0] for event in broken(events)] == [
        "a.zip, conversations.json, entry 1"
    ]


@pytest.mark.parametrize("comment", [b"", b"x" * 65_535])
@pytest.mark.parametrize("limit", [zipfile.ZIP_FILECOUNT_LIMIT, 10])
def test_the_size_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, comment: bytes
) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", limit)
    path = with_pictures(tmp_path / "a.zip", 30)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment
        size = sum(46 + len(member.filename) + len(member.extra) for member in archive.infolist())
    with path.open("rb") as file:
        assert sources.directory_size(file) == size
        assert file.tell() == 0
    small = b"PK\x06\x06" + bytes(36) + struct.pack("<QQ", 7, 0)  # a zip64 record that says less
    path.write_bytes(small + b"PK\x05\x06" + bytes(8) + struct.pack("<II", 500, 0) + bytes(2))
    with path.open("rb") as file:
        assert sources.directory_size(file) == 500
    path.write_bytes(b"PK\x03\x04" + bytes(30) + b"PK\x05\x06" + bytes(10))  # cut before the size
    with path.open("rb") as file:
        assert sources.directory_size(file) == 0


# -- databases in archives


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def bomb(path: Path, size: int) -> Path:
    """A member that begins like a database and continues with zeros."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("webui.db", "w", force_zip64=True) as file,
    ):
        file.write(b"SQLite format 3\0")
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return path


def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the bytes of files when their temporary folder is removed."""
    sizes: list[int] = []
    real = tempfile.TemporaryDirectory.cleanup

    def cleanup(self: tempfile.TemporaryDirectory[str]) -> None:
        sizes.append(sum(file.stat().st_size for file in Path(self.name).rglob("*")))
        real(self)

    monkeypatch.setattr(tempfile.TemporaryDirectory, "__exit__", lambda self, *_: cleanup(self))
    return sizes


def test_a_bomb_is_not_unpacked(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "small.zip", 200 << 20)
    assert path.stat().st_size < 1 << 20
    sizes = unpacked(monkeypatch)
    events = run(database, path)
    assert imported(events) == []
    assert any("unpack it yourself" in event.reason for event in broken(events))
    assert sum(sizes) == 0
    small = broken(run(database, bomb(tmp_path / "smaller.zip", 2 << 20)))  # does no harm
    assert not any("unpack it yourself" in event.reason for event in small)
    assert sum(sizes) > 2 << 20


@pytest.mark.slow
def test_a_bomb_that_lies_about_its_packed_size(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path / "small.zip", 200 << 20)
    data = bytearray(path.read_bytes())
    entry = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 20, 150 << 20)
    path.write_bytes(bytes(data))
    sizes = unpacked(monkeypatch)
    assert imported(run(database, path)) == []
    assert sum(sizes) == 0


def test_a_database_that_the_disk_has_no_room_for(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(made(tmp_path / "webui.db", chat()), "webui.db")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 40, 0, (1 << 30) + 100))
    sizes = unpacked(monkeypatch)
    events = run(database, path)
    assert [event.reason.partition(";")[2] for event in broken(events)][:1] == [
        " free some space, or unpack it elsewhere and import the file."
    ]
    assert re.match(r"Unpacking it needs [\d.]+ kB, but the disk of ", broken(events)[0].reason)
    assert " has 1.07 GB free; " in broken(events)[0].reason
    assert sum(sizes) == 0
    monkeypatch.undo()
    assert len(imported(run(database, path))) == 1


def test_a_database_comes_with_its_journal(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    """Open WebUI was running when its folder was packed: the newest chats are in the journal alone."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = made(folder / "webui.db", wal=True)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute(
            "INSERT INTO chat (id, title, created_at, updated_at, chat) VALUES ('n', 'Newest', 1, 1, ?)",
            (chat(),),
        )
        other.commit()
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for file in folder.iterdir():
                archive.write(file, f"data/{file.name}")
    (event,) = imported(run(database, tmp_path / "a.zip"))
    assert event.title == "Greeting"
    assert len(shown(store, event.conversation_id)) == 2


# above it, the end is written in its larger form as well
@pytest.mark.parametrize("limit", [zipfile.ZIP_FILECOUNT_LIMIT, 10])
def test_a_directory_that_is_too_large_is_reported(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", limit)
    monkeypatch.setattr(sources, "_MOST_DIRECTORY", 1 << 10)
    (reported,) = broken(run(database, with_pictures(tmp_path / "a.zip", 30)))
    assert "its directory is larger than" in reported.reason
    monkeypatch.setattr(sources, "_MOST_DIRECTORY", 1 << 20)
    assert len(imported(run(database, with_pictures(tmp_path / "a.zip", 30)))) == 2
