"""Computes the SHA-256 of model files in the background, while no reply is being generated."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.engine.stream_thread import StreamThread
from desktop.services.session.chat_session import ChatSession
from desktop.store.caches.file_hashes import FILE_NAME, FileHashes, computed, identity
from engine.core import ModelInfo

__all__ = ["HashService"]

_AFTER_LOADING_MS = 4000
_PAUSE_S = 0.2


class HashService(QObject):
    """Knows the hash of each model that was used: the loaded one's is computed soon after loading, others on
    request.

    Signals:
        progress(str path, int done, int total): bytes.
        found(str path, str hash): "" if the files could not be read.
    """

    progress = Signal(str, object, object)
    found = Signal(str, str)

    def __init__(self, session: ChatSession, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._hashes = FileHashes(folder / FILE_NAME)
        self._worker: StreamThread | None = None
        self._jobs: dict[int, tuple[str, str]] = {}
        self._free = threading.Event()
        self._free.set()
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(_AFTER_LOADING_MS)
        self._soon.timeout.connect(self._look)
        session.model_changed.connect(self._on_model)
        session.state_changed.connect(self._on_state)

    def hash_of(self, path: str, key: str = "") -> str:
        """The hash of a model's files, or of those with the identity `key`; "" while it is not known."""
        return self._hashes.get(key or identity(Path(path)))

    def compute(self, path: str) -> None:
        """Compute it, unless it is known or being computed."""
        key = identity(Path(path))
        if not key or self._hashes.get(key) or key in [each for _, each in self._jobs.values()]:
            return
        if self._worker is None:
            self._worker = StreamThread("hashes", self)
            self._worker.yielded.connect(self._on_yielded)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_finished)
        job = self._worker.start(lambda stop: _computing(Path(path), self._free, stop))
        self._jobs[job.id] = path, key

    def close(self) -> bool:
        """End the thread."""
        self._soon.stop()
        return self._worker is None or self._worker.close()

    @Slot(object)
    def _on_model(self, model: ModelInfo | None) -> None:
        self._soon.start() if model is not None else self._soon.stop()

    @Slot()
    def _look(self) -> None:
        if self._session.model is not None:
            self.compute(self._session.model.path)

    @Slot(str)
    def _on_state(self, state: str) -> None:
        self._free.set() if state in ("idle", "no_model") else self._free.clear()

    @Slot(int, object)
    def _on_yielded(self, job: int, progress: tuple[int, int, str]) -> None:
        path, key = self._jobs[job]
        done, total, found = progress
        if found:
            self._hashes.put(key, found)
            self.found.emit(path, found)
        else:
            self.progress.emit(path, done, total)

    @Slot(int, object)
    @Slot(int, str, str)
    def _on_finished(self, job: int, *_result: object) -> None:
        path, key = self._jobs.pop(job)
        if not self._hashes.get(key):
            self.found.emit(path, "")


def _computing(
    path: Path, free: threading.Event, stop: threading.Event
) -> Generator[tuple[int, int, str], None, None]:
    def wait() -> bool:
        while not stop.is_set() and not free.wait(_PAUSE_S):
            pass
        return not stop.is_set()

    try:
        yield from computed(path, wait)
    except OSError:
        return
