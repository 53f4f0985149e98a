"""The files for the next message: their tokens, counted or estimated, and whose they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.services.composer.attachments import AttachmentService
from desktop.store.attachments.message_format import Attachment, message_text
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
