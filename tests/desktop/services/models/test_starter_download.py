"""The download service: progress, the end, cancelling, resuming, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.models.starter_download import DownloadService
from engine.core import Downloaded, Downloading
from engine.errors import DownloadError


class Server:
    """Stands in for engine.hub: 4 GB in four parts; stops with an error, like the hub."""

    def __init__(self) -> None:
        self.have = 0
        self.slow = False
        self.error: Exception | None = None

    def fetch(self, folder: Path, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
        while self.have < 4:
            yield Downloading("Fetching", self.have << 30, 4 << 30)
            if stop.wait(30 if self.slow else 0):
                raise DownloadError("It was stopped; the next try goes on from there.")
            if self.error is not None:
                raise self.error
            self.have += 1
        yield Downloaded(str(folder / "starter.gguf"))


class Notes:
    def __init__(self, service: DownloadService) -> None:
        self.seen: list[tuple[Any, ...]] = []
        for name in ("progress", "finished", "failed", "cancelled", "running_changed"):
            getattr(service, name).connect(self.note(name))

    def note(self, name: str) -> Callable[..., None]:
        return lambda *values: self.seen.append((name, *values))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def service(qtbot: QtBot, server: Server, tmp_path: Path) -> Iterator[DownloadService]:
    found = DownloadService(tmp_path, server.fetch)
    yield found
    assert found.close()


def test_a_download(qtbot: QtBot, service: DownloadService, tmp_path: Path) -> None:
    notes = Notes(service)
    with qtbot.waitSignal(service.finished):
        service.start()
        service.start()  # one at a time
        assert service.running
    assert notes.seen == [
        ("running_changed", True),
        *(("progress", "Fetching", part << 30, 4 << 30) for part in range(4)),
        ("running_changed", False),
        ("finished", str(tmp_path / "starter.gguf")),
    ]
    assert not service.running


def test_cancel_and_resume(qtbot: QtBot, service: DownloadService, server: Server) -> None:
    server.slow = True
    notes = Notes(service)
    service.cancel()  # nothing runs: nothing happens
    service.start()
    qtbot.waitUntil(lambda: len(notes.seen) == 2)
    with qtbot.waitSignal(service.cancelled):
        service.cancel()
    assert [name for name, *_ in notes.seen] == [
        "running_changed",
        "progress",
        "running_changed",
        "cancelled",
    ]
    server.slow, server.have = False, 2
    with qtbot.waitSignal(service.finished):
        service.start()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DownloadError("No network: open a file instead."), "No network: open a file instead."),
        (KeyError("name"), "Something went wrong"),
    ],
)
def test_errors(qtbot: QtBot, service: DownloadService, server: Server, error: Exception, text: str) -> None:
    server.error = error
    with qtbot.waitSignal(service.failed) as caught:
        service.start()
    assert caught.args is not None
    assert text in caught.args[0]
    assert bool(caught.args[1]) == isinstance(error, KeyError)
    assert not service.running


def test_close_during_a_download(qtbot: QtBot, service: DownloadService, server: Server) -> None:
    server.slow = True
    service.start()
    assert service.close()
