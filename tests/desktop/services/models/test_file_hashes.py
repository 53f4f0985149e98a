"""The hash of a model's files is computed after the model was loaded, on request, and beside no reply."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.models import file_hashes
from desktop.services.models.file_hashes import HashService
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui


def test_the_hash_of_a_loaded_model_is_found(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "_AFTER_LOADING_MS", 0)
    with closing(Hand(qtbot, tmp_path)) as hand:
        hashes, path = hand.desktop.services.provenance.hashes, str(tmp_path / "echo.gguf")
        found: list[tuple[str, str]] = []
        hashes.found.connect(lambda *of: found.append(of))
        hand.load()
        qtbot.waitUntil(lambda: bool(found))
        assert found == [(path, hashlib.sha256(b"").hexdigest())] == [(path, hashes.hash_of(path))]


def test_it_is_computed_on_request_and_only_once(
    talking, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desktop.store.caches.file_hashes._PIECE", 4)
    path = tmp_path / "a.gguf"
    path.write_bytes(b"0123456789")
    service = HashService(talking.session, tmp_path)
    heard: list[tuple[object, ...]] = []
    service.progress.connect(lambda *what: heard.append(what))
    service.found.connect(lambda *what: heard.append(what))
    for _ in range(2):
        service.compute(str(path))
    told = [(str(path), 4, 10), (str(path), 8, 10), (str(path), 10, 10)]
    expected = [*told, (str(path), hashlib.sha256(b"0123456789").hexdigest())]
    qtbot.waitUntil(lambda: heard == expected)
    service.compute(str(path))
    service.compute(str(tmp_path / "gone.gguf"))
    qtbot.wait(50)
    assert heard == expected
    assert service.close()


def test_it_waits_while_a_reply_is_written(talking, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"model")
    service = HashService(talking.session, tmp_path)
    talking.chat.hold = threading.Event()
    assert talking.session.submit("Hello")
    qtbot.waitUntil(lambda: len(talking.chat.requests) == 1)
    service.compute(str(path))
    qtbot.wait(400)
    assert service.hash_of(str(path)) == ""
    talking.chat.hold.set()
    qtbot.waitUntil(lambda: service.hash_of(str(path)) == hashlib.sha256(b"model").hexdigest())
    talking.until_idle()
    assert service.close()


def test_of_a_file_that_cannot_be_read_it_is_empty(
    talking, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_asked: object) -> Iterator[tuple[int, int, str]]:
        raise PermissionError
        yield

    path = tmp_path / "a.gguf"
    path.write_bytes(b"model")
    service = HashService(talking.session, tmp_path)
    monkeypatch.setattr(file_hashes, "computed", unreadable)
    with qtbot.waitSignal(service.found) as found:
        service.compute(str(path))
    assert found.args == [str(path), ""]
    monkeypatch.undo()
    with qtbot.waitSignal(service.found) as found:  # it can be asked for again
        service.compute(str(path))
    assert found.args == [str(path), hashlib.sha256(b"model").hexdigest()]
    assert service.close()
