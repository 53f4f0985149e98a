"""The download of the starter model, for the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.stream_thread import Job, StreamThread
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
    """One download at a time into `folder`, on a thread of its own (created on first use).

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
        self._worker: StreamThread | None = None
        self._job: Job | None = None
        self._path = ""

    @property
    def running(self) -> bool:
        return self._job is not None

    def start(self) -> None:
        """Start or resume, unless a download runs."""
        if self._job is not None:
            return
        if self._worker is None:
            self._worker = StreamThread("download", self)
            self._worker.yielded.connect(self._on_yielded)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_failed)
        self._path = ""
        self._job = self._worker.start(self._run)
        self.running_changed.emit(True)

    def cancel(self) -> None:
        """Stop soon; what was downloaded is kept for the next start."""
        if self._job is not None:
            self._job.stop()

    def close(self) -> bool:
        """End the download and its thread."""
        return self._worker.close() if self._worker is not None else True

    def _run(self, stop: threading.Event) -> Generator[Downloading | Downloaded, None, None]:
        yield from self._fetch(self._folder, stop)

    @Slot(int, object)
    def _on_yielded(self, job: int, event: Downloading | Downloaded) -> None:
        if isinstance(event, Downloaded):
            self._path = event.path
        else:
            self.progress.emit(event.stage, event.done, event.total)

    @Slot(int, object)
    def _on_finished(self, job: int, result: object) -> None:
        self._end()
        if self._path:
            self.finished.emit(self._path)
        else:
            self.cancelled.emit()

    @Slot(int, str, str)
    def _on_failed(self, job: int, sentence: str, details: str) -> None:
        stopped = self._job is not None and self._job.stopping
        self._end()
        if stopped and not details:
            self.cancelled.emit()
        else:
            self.failed.emit(sentence, details)

    def _end(self) -> None:
        self._job = None
        self.running_changed.emit(False)
