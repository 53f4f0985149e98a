"""Finds the models on this computer off the GUI thread: recent ones, the folder of downloads, folders the user added."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.catalogue import ModelEntry, entry, model_name
from desktop.services.model_slot import Describe, describe
from desktop.services.worker import Job, StreamThread
from engine.errors import EngineError

__all__ = ["CatalogueService", "model_paths"]

DEPTH = 4
"""Folders below an added one are looked into this deep: publisher / model / variant, and one more."""
MOST_FOLDERS = 2000
"""A folder chosen by mistake (a whole disk) ends here."""

_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


class CatalogueService(QObject):
    """Looks for models when asked. What was read once is kept until the file changes.

    Signals:
        changed(object entries): a tuple of `ModelEntry`, recent ones first; emitted as they are found.
        finished(): the search is over.
    """

    changed = Signal(object)
    finished = Signal()

    def __init__(self, describe: Describe = describe, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._describe = describe
        self._worker = StreamThread("catalogue", self)
        self._worker.yielded.connect(self._on_yielded)
        self._worker.finished.connect(self._on_finished)
        self._worker.failed.connect(self._on_failed)
        self._job: Job | None = None
        self._entries: dict[str, ModelEntry] = {}
        self._known: dict[tuple[str, int, int], ModelEntry] = {}  # touched by the worker's thread only

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """What was found so far."""
        return tuple(self._entries.values())

    def refresh(self, recent: Sequence[str], folders: Sequence[str | Path]) -> None:
        """Look again; a search that runs is ended."""
        if self._job is not None:
            self._job.stop()
        self._entries = {}
        places, within = tuple(Path(path) for path in recent), tuple(Path(folder) for folder in folders)
        self._job = self._worker.start(lambda stop: self._find(places, within, stop))

    def close(self) -> bool:
        """End the search and its thread."""
        return self._worker.close()

    def _find(self, recent: Iterable[Path], folders: Iterable[Path], stop: threading.Event) -> Generator[ModelEntry, None, None]:
        seen: set[str] = set()
        for path in (*(path for path in recent if path.exists()), *_in_folders(folders, stop)):
            if stop.is_set():
                return
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield self._read(path)

    def _read(self, path: Path) -> ModelEntry:
        try:
            facts = path.stat()
            key = (str(path), facts.st_mtime_ns, facts.st_size)
            if key not in self._known:
                self._known[key] = entry(self._describe(path))
            return self._known[key]
        except (EngineError, OSError) as error:
            return ModelEntry(str(path), model_name(path), trouble=str(error))

    @Slot(int, object)
    def _on_yielded(self, job: int, found: ModelEntry) -> None:
        if self._job is not None and job == self._job.id:
            self._entries[found.path] = found
            self.changed.emit(self.entries)

    @Slot(int, object)
    def _on_finished(self, job: int, result: object) -> None:
        if self._job is not None and job == self._job.id:
            self._job = None
            self.changed.emit(self.entries)
            self.finished.emit()

    @Slot(int, str, str)
    def _on_failed(self, job: int, sentence: str, details: str) -> None:
        self._on_finished(job, None)


def model_paths(folder: Path, stop: threading.Event) -> Iterator[Path]:
    """GGUF files (of split ones the first) and folders with config.json and *.safetensors, by name; hidden folders are left out."""
    waiting = [(folder, 0)]
    looked = 0
    while waiting and looked < MOST_FOLDERS and not stop.is_set():
        here, depth = waiting.pop(0)
        looked += 1
        try:
            found = sorted(here.iterdir(), key=lambda path: path.name.lower())
        except OSError:
            continue
        names = {path.name for path in found}
        if "config.json" in names and any(name.endswith(".safetensors") for name in names):
            yield here
        for path in found:
            if path.suffix.lower() == ".gguf" and path.is_file() and not _LATER_SHARD.search(path.name):
                yield path
            elif depth < DEPTH and not path.name.startswith(".") and path.is_dir() and not path.is_symlink():
                waiting.append((path, depth + 1))


def _in_folders(folders: Iterable[Path], stop: threading.Event) -> Iterator[Path]:
    for folder in folders:
        yield from model_paths(folder, stop)
