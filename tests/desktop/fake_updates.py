"""Updates without a network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from desktop.services.system.updates import UpdateApi
from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub.updates.manifest import Update

__all__ = ["FakeUpdates"]

NOTES = "- Chats open twice as fast.\n- A reply can be read aloud.\n- The window remembers its folders."


class FakeUpdates(UpdateApi):
    """`update` is what `check` finds; `sentence` makes it and `install` fail; `install` waits for `go`."""

    version = "1.0"

    def __init__(self) -> None:
        self.update: Update | None = Update("2.0", "2026-11-25", NOTES, ())
        self.sentence, self.advised, self.source = "", "", True
        self.kept: Path | None = None
        self.checks = self.installs = 0
        self.go = threading.Event()
        self.go.set()

    def can_check(self) -> bool:
        return self.source

    def advice(self) -> str:
        return self.advised

    def check(self, stop: threading.Event) -> Update | None:
        self.checks += 1
        self._fail()
        return self.update

    def install(self, update: Update, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
        self.installs += 1
        self._fail()
        yield Downloading("Fetching Inglenook 2.0", 40_000_000, 140_000_000)
        while not self.go.wait(0.005):
            if stop.is_set():
                raise DownloadError("It was stopped.")
        self.kept = Path("before")
        yield Downloaded("image")

    def before(self) -> Path | None:
        return self.kept

    def roll_back(self) -> None:
        self._fail()
        self.kept = None

    def _fail(self) -> None:
        if self.sentence:
            raise DownloadError(self.sentence)
