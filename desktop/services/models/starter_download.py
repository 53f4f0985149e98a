"""The download of the starter model, for the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from engine.core import Downloaded, Downloading

__all__ = ["DownloadService", "Fetch"]

Fetch = Callable[[Path, threading.Event], Iterator[Downloading | Downloaded]]
"""Downloads into a folder and yields progress; the last event is `Downloaded`. Like
`engine.hub.fetch_starter`.
"""


def fetch_starter(folder: Path, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
    """`engine.hub.fetch_starter`, imported on first use."""
    from engine.hub import fetch_starter as fetch

    return fetch(folder, stop)


class DownloadService(QObject):
    """One download at a time into `folder`, on a thread of its own.

    Signals:
        progress(str stage, object done, object total): bytes (Python ints: a C++ int ends at 2 GiB); total 0
        is unknown.
        finished(str path): the finished, verified file.
        failed(str sentence, str details)
        cancelled(): stopped by `cancel`; the next start resumes it.
        running_changed(bool)
    """

    progress = Signal(str, object, object)
    finished = Signal(str)
    failed = Signal(str, str)
    cancelled = Signal()
    running_changed = Signal(bool)

    def __init__(self, folder: Path, fetch: Fetch = fetch_starter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._fetch = fetch
        self._background = Background("download", self)
        self._job: Job | None = None
        self._path = ""

    @property
    def running(self) -> bool:
        return self._job is not None

    def start(self) -> None:
        """Start or resume, unless a download runs."""
        if self._job is not None:
            return
        self._path = ""
        self._job = self._background.start(
            lambda stop: self._fetch(self._folder, stop), self._on_ended, self._on_failed, self._on_event
        )
        self.running_changed.emit(True)

    def cancel(self) -> None:
        """Stop soon; what was downloaded is kept for the next start."""
        if self._job is not None:
            self._job.stop()

    def close(self) -> bool:
        """End the download and its thread."""
        return self._background.close()

    def _on_event(self, event: Downloading | Downloaded) -> None:
        if isinstance(event, Downloaded):
            self._path = event.path
        else:
            self.progress.emit(event.stage, event.done, event.total)

    def _on_ended(self, _result: object) -> None:
        self._end()
        if self._path:
            self.finished.emit(self._path)
        else:
            self.cancelled.emit()

    def _on_failed(self, sentence: str, details: str) -> None:
        stopped = self._job is not None and self._job.stopping
        self._end()
        if stopped and not details:
            self.cancelled.emit()
        else:
            self.failed.emit(sentence, details)

    def _end(self) -> None:
        self._job = None
        self.running_changed.emit(False)
