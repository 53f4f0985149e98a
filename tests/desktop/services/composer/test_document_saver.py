"""What is typed into a notebook waits while it cannot be saved, and trouble is told once."""

from __future__ import annotations

from types import SimpleNamespace

from pytestqt.qtbot import QtBot

from desktop.services.composer.document_saver import DocumentSaver


def test_trouble_is_told_once_until_everything_is_saved(qtbot: QtBot) -> None:
    saved: dict[int, tuple[str, bool]] = {}
    broken = {1, 2}

    def save_document(message: int, text: str, settled: bool) -> bool:
        if message not in broken:
            saved[message] = (text, settled)
        return message not in broken

    saver = DocumentSaver(SimpleNamespace(save_document=save_document))
    told: list[str] = []
    saver.trouble.connect(lambda _sentence: told.append("trouble"))
    saver.saved_again.connect(lambda: told.append("saved"))
    assert not saver.save(1, "one", False)
    assert not saver.save(2, "two", True)
    assert not saver.save(1, "one more", False)
    assert told == ["trouble"]
    assert saver.waiting(1) == "one more"
    broken.discard(2)
    saver.retry()
    assert (saver.waiting(2), saved, told) == (None, {2: ("two", True)}, ["trouble"])
    broken.clear()
    saver.retry()
    assert saved[1] == ("one more", False)
    assert saver.save(3, "three", False)
    assert told == ["trouble", "saved"]
    broken.add(3)
    saver.save(3, "four", False)
    assert told == ["trouble", "saved", "trouble"]
