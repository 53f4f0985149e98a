"""Computes the SHA-256 of model files in the background, while no reply is being generated."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.background import Background
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.store.caches.file_hashes import FILE_NAME, FileHashes, computed, identity
from engine.core import ModelInfo

__all__ = ["HashService"]

_AFTER_LOADING_MS = 4000
_PAUSE_S = 0.2


class HashService(QObject):
    """Knows the hash of each model that was used: the loaded one's, and that of its vision encoder's file, is
    computed soon after loading, others on request.

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
        self._background = Background("hashes", self)
        self._computing: set[str] = set()
        self._free = threading.Event()
        self._free.set()
        self._soon = debounce(self, self._look, _AFTER_LOADING_MS)
        session.model_changed.connect(self._on_model)
        session.engine_changed.connect(self._on_engine)

    def hash_of(self, path: str, key: str = "") -> str:
        """The hash of a model's files, or of those with the identity `key`; "" while it is not known."""
        return self._hashes.get(key or identity(Path(path)))

    def compute(self, path: str) -> None:
        """Compute it, unless it is known or being computed."""
        key = identity(Path(path))
        if not key or self._hashes.get(key) or key in self._computing:
            return
        self._computing.add(key)
        self._background.start(
            lambda stop: _computing(Path(path), self._free, stop),
            lambda _result: self._on_ended(path, key),
            event=lambda progress: self._on_progress(path, key, *progress),
        )

    def close(self) -> bool:
        """End the thread."""
        self._soon.stop()
        return self._background.close()

    @Slot(object)
    def _on_model(self, model: ModelInfo | None) -> None:
        self._soon.start() if model is not None else self._soon.stop()

    @Slot()
    def _look(self) -> None:
        model = self._session.model
        if model is not None and not model.host:
            self.compute(model.path)
            if model.vision_file:
                self.compute(model.vision_file)

    @Slot()
    def _on_engine(self) -> None:
        self._free.clear() if self._session.busy else self._free.set()

    def _on_progress(self, path: str, key: str, done: int, total: int, found: str) -> None:
        if found:
            self._hashes.put(key, found)
            self.found.emit(path, found)
        else:
            self.progress.emit(path, done, total)

    def _on_ended(self, path: str, key: str) -> None:
        self._computing.discard(key)
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
