"""The files for the next message: their tokens, counted or estimated, and whose they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from desktop.services.composer import attachment_reading
from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.pictures import ReadPicture, encoded
from desktop.store.attachments.files import read_attachment
from desktop.store.attachments.message_format import Attachment, message_text
from desktop.store.attachments.pictures import StoredPicture
from tests.desktop.picture_files import drawn, saved
from tests.desktop.services.conftest import Harness

NOTE = Attachment("note.txt", "one two three four five")


@pytest.fixture
def files(harness: Harness) -> Iterator[AttachmentService]:
    service = AttachmentService(harness.session)
    yield service
    assert service.close()


def counts(files: AttachmentService, conversation: int) -> list[tuple[int, bool]]:
    return [(held.tokens, held.exact) for held in files.held(conversation)]


def test_a_file_is_counted_as_soon_as_a_model_can_count(harness: Harness, files: AttachmentService) -> None:
    here, words = harness.session.conversation, len(message_text(NOTE).split())
    files.hold(NOTE, here)
    assert counts(files, here) == [(6, False)]  # 23 characters at 3.8 for a token
    harness.load()
    harness.qtbot.waitUntil(lambda: counts(files, here) == [(words, True)])
    changed: list[int] = []
    files.changed.connect(changed.append)
    seen: list[tuple[int, bool]] = []
    harness.session.model_changed.connect(lambda _model: seen.extend(counts(files, here)))
    harness.load("/models/another.gguf")
    harness.qtbot.waitUntil(lambda: len(changed) > 1)
    assert seen[-1] == (6, False)
    assert set(changed) == {here}
    assert counts(files, here) == [(words, True)]


def test_a_count_that_a_reply_kept_from_being_made_is_made_after_it(
    harness: Harness, files: AttachmentService
) -> None:
    harness.load()
    here, harness.chat.hold = harness.session.conversation, threading.Event()
    assert harness.session.submit("Wait.")
    files.hold(NOTE, here)
    assert counts(files, here) == [(6, False)]
    harness.chat.hold.set()
    harness.qtbot.waitUntil(lambda: [exact for _tokens, exact in counts(files, here)] == [True])


def test_a_very_long_file_stays_estimated(harness: Harness, files: AttachmentService) -> None:
    harness.load()
    here = harness.session.conversation
    files.hold(Attachment("long.txt", "a " * 200_001), here)
    files.hold(NOTE, here)
    harness.qtbot.waitUntil(lambda: files.held(here)[1].exact)
    assert counts(files, here)[0] == (105264, False)


def test_files_move_with_what_is_read_and_those_of_other_chats_stay(
    harness: Harness, files: AttachmentService, tmp_path: Path
) -> None:
    first, second, third = 1, 2, 3
    (tmp_path / "read.txt").write_text("read")
    files.hold(NOTE, second)
    files.hold(NOTE, first)
    files.hold(NOTE, third)
    files.read([tmp_path / "read.txt"], first)
    assert files.is_reading(first)
    assert not files.is_reading(second)
    files.move(first, second)
    assert files.is_reading(second)
    assert not files.is_reading(first)
    harness.qtbot.waitUntil(lambda: not files.is_reading(second))
    names = [[held.attachment.name for held in files.held(chat)] for chat in (first, second, third)]
    assert names == [[], ["note.txt", "note.txt", "read.txt"], ["note.txt"]]
    files.remove(files.held(second)[1].key, second)
    assert [held.attachment.name for held in files.held(second)] == ["note.txt", "read.txt"]
    assert len(files.held(third)) == 1


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A file whose disk does not answer until the end of the test."""
    answer = threading.Event()

    def read(path: Path, stop: threading.Event) -> Attachment:
        if path.name == "dead.txt":
            answer.wait()
        return read_attachment(path, stop)

    monkeypatch.setattr(attachment_reading, "read_attachment", read)
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "dead.txt").write_text("dead")
    yield tmp_path / "dead.txt"
    answer.set()


def test_a_file_that_does_not_answer_holds_up_no_other(
    harness: Harness, files: AttachmentService, dead: Path
) -> None:
    here, good = harness.session.conversation, dead.with_name("good.txt")
    refused: list[str] = []
    files.refused.connect(refused.append)
    files.read([dead], here)
    files.read([good], here)
    harness.qtbot.waitUntil(lambda: [held.attachment.name for held in files.held(here)] == ["good.txt"])
    assert files.is_reading(here)
    files.stop_reading()
    harness.qtbot.waitUntil(lambda: not files.is_reading(here))
    files.read([good], here)
    harness.qtbot.waitUntil(lambda: len(files.held(here)) == 2)
    assert refused == []
    files.read([dead], here)
    began = time.monotonic()
    assert files.close()
    assert time.monotonic() - began < 5


def test_after_a_while_it_is_given_up_and_the_next_is_read(
    harness: Harness, files: AttachmentService, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_reading, "LONGEST_S", 0.2)
    here, refused = harness.session.conversation, list[str]()
    files.refused.connect(refused.append)
    files.read([dead, dead.with_name("good.txt")], here)
    harness.qtbot.waitUntil(lambda: not files.is_reading(here))
    assert refused == [
        "“dead.txt” was not read: its disk or server does not answer. Copy it to another place, then attach "
        "the copy."
    ]
    assert [held.attachment.name for held in files.held(here)] == ["good.txt"]


def test_files_that_answer_are_not_waited_for(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 files took ten seconds."""
    monkeypatch.setattr(attachment_reading, "_LOOK_S", 20.0)
    good, stop = dead.with_name("good.txt"), threading.Event()
    reading = attachment_reading.read_files([good] * 3, stop)
    assert [next(reading), next(reading)] == [Attachment("good.txt", "good")] * 2
    stop.set()
    assert list(reading) == []


def test_pictures_are_decoded_by_the_thread_that_is_waited_for(
    qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that decoded with Qt at the end of the program crashed it."""
    (tmp_path / "a.png").write_bytes(saved(drawn()))
    threads: list[str] = []

    def decode(data: bytes, name: str) -> StoredPicture:
        threads.append(threading.current_thread().name)
        return encoded(data, name)

    monkeypatch.setattr(attachment_reading, "encoded", decode)
    found = [each for each in attachment_reading.read_files([tmp_path / "a.png"], threading.Event()) if each]
    assert threads == [threading.current_thread().name]
    assert [each.name for each in found if isinstance(each, ReadPicture)] == ["a.png"]


@pytest.mark.parametrize("temporary", [False, True])
def test_pictures_of_temporary_chats_are_never_on_disk(
    harness: Harness, files: AttachmentService, tmp_path: Path, temporary: bool
) -> None:
    """Neither pasted ones nor those of files."""
    if temporary:
        assert harness.session.new_temporary()
    here, count = harness.session.conversation, "SELECT count(*) FROM pictures"
    (tmp_path / "a.png").write_bytes(saved(drawn()))
    files.paste(drawn(9, 7), here)
    files.read([tmp_path / "a.png"], here)
    harness.qtbot.waitUntil(lambda: len(files.held(here)) == 2)
    pictures = [held.attachment.picture for held in files.held(here)]
    assert all(mark is not None and files.picture(mark.key, here) is not None for mark in pictures)
    assert harness.stores.database.execute(count).fetchone() == ((0,) if temporary else (2,))


def test_what_reading_raises_is_reported(
    harness: Harness, files: AttachmentService, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, stop: threading.Event) -> Attachment:
        raise ZeroDivisionError(path)

    monkeypatch.setattr(attachment_reading, "read_attachment", broken)
    refused: list[str] = []
    files.refused.connect(refused.append)
    files.read([dead], harness.session.conversation)
    harness.qtbot.waitUntil(lambda: len(refused) == 1)
    assert "ZeroDivisionError" in refused[0]
