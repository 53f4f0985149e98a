"""Files that were still being read when the program was closed are read when it is opened again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.services.composer import attachment_reading
from desktop.store.attachments.files import read_attachment
from desktop.store.attachments.message_format import Attachment
from tests.desktop.hand import Hand


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def test_what_was_not_read_is_read_after_the_next_start(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def read(path: Path, stop: threading.Event) -> Attachment:
        if path.name == "slow.txt":
            answer.wait()
        return read_attachment(path, stop)

    monkeypatch.setattr(attachment_reading, "read_attachment", read)
    folder = hand.folder / "papers"
    folder.mkdir()
    paths = [folder / "quick.txt", folder / "slow.txt"]
    for path in paths:
        path.write_text(path.stem)
    hand.say("First")
    talk, preferences = hand.session.conversation, hand.session.preferences
    attachments = hand.window.services.composer.attachments
    hand.window.files.open(paths)
    hand.qtbot.waitUntil(lambda: len(attachments.held(talk)) == 1)
    assert preferences.unread_files == {talk: tuple(map(str, paths))}
    hand.window.navigation.new_chat()
    hand.restart()
    answer.set()
    attachments = hand.window.services.composer.attachments
    assert attachments.held(talk) == []
    hand.window.navigation.open_chat(talk)
    hand.qtbot.waitUntil(lambda: not attachments.is_reading(talk))
    assert [held.attachment.text for held in attachments.held(talk)] == ["quick", "slow"]
    assert hand.session.preferences.unread_files == {}
    hand.restart()
    assert [held.attachment.text for held in hand.window.services.composer.attachments.held(talk)] == [
        "quick", "slow",
    ]  # fmt: skip
