"""Finds models on this computer off the GUI thread: recent ones, the user's folders, other programs'."""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.items.models.local_models import ModelEntry, entry, model_name
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.engine.model_host import Describe, describe
from desktop.services.models.header_reader import HeaderReader
from desktop.services.system.debounce import debounce
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.hub.local.scan import FoundModel

__all__ = ["FindModels", "LocalModelsService", "find_models"]

FindModels = Callable[[Sequence[tuple[str, str]], threading.Event], "Iterator[FoundModel]"]
"""Finds models in (source, folder) pairs and in the folders of other programs, like `find_models`."""
UPDATE_MS, UPDATE_MANY_MS, MANY = 40, 160, 100
"""At most one update in this time, and fewer from `MANY` models on: a thousand models are not a thousand
updates of a list.
"""
_MOST_FILES = 2000
_ENGINE = describe
"""The engine's own reader of headers, which runs in another process."""


def find_models(folders: Sequence[tuple[str, str]], stop: threading.Event) -> Iterator[FoundModel]:
    """`engine.hub.local.scan.find_models` in these folders and those of other programs, imported on first
    use.
    """
    from engine.hub.local import scan as hub

    places = [hub.Place(source, Path(path)) for source, path in folders]
    yield from hub.find_models((*places, *hub.known_places()), stop)


class LocalModelsService(QObject):
    """Looks for models on request. What was read once is kept until the file changes.

    Signals:
        changed(object entries): a tuple of `ModelEntry`, recent ones first, as they are found and at the end.
        finished(): the search is over.
    """

    changed = Signal(object)
    finished = Signal()

    def __init__(
        self, describe: Describe = describe, find: FindModels = find_models, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._describe, self._find_models = describe, find
        self._headers = HeaderReader() if describe is _ENGINE else None
        self._background = Background("catalogue", self)
        self._job: Job | None = None
        self._entries: dict[str, ModelEntry] = {}
        self._before: dict[str, ModelEntry] = {}
        self._known: dict[tuple[object, ...], ModelEntry] = {}  # used by the worker thread only
        self.elsewhere: Callable[[], tuple[ModelEntry, ...]] = tuple
        """Models that are not on this computer, and can be chosen too."""
        self._update_timer = debounce(self, lambda: self.changed.emit(self.entries))

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """What was found so far; during a search, also what the previous one had found."""
        return tuple(
            {
                **self._entries,
                **{path: old for path, old in self._before.items() if path not in self._entries},
            }.values()
        )

    @property
    def choices(self) -> tuple[ModelEntry, ...]:
        """Every model that can be chosen, those of servers last."""
        return (*self.entries, *self.elsewhere())

    @property
    def searching(self) -> bool:
        return self._job is not None

    def refresh(self, recent: Sequence[str], folders: Sequence[tuple[str, str]]) -> None:
        """Search again, in (source, folder) pairs and other programs' folders; replaces a running search."""
        self._background.drop(self._job)
        self._before = {found.path: found for found in self.entries}
        self._entries = {}
        places, within = tuple(recent), tuple(folders)
        self._job = self._background.start(
            lambda stop: self._find(places, within, stop), self._on_ended, event=self._on_found
        )

    def close(self) -> bool:
        """End the search and its thread."""
        self._update_timer.stop()
        if self._job is not None:
            self._job.stop()
        if self._headers is not None:
            self._headers.end()
        return self._background.close()

    def _find(
        self, recent: Sequence[str], folders: Sequence[tuple[str, str]], stop: threading.Event
    ) -> Generator[ModelEntry, None, None]:
        try:
            yield from self._found(recent, folders, stop)
        finally:
            if self._headers is not None:
                self._headers.rest()

    def _found(
        self, recent: Sequence[str], folders: Sequence[tuple[str, str]], stop: threading.Event
    ) -> Generator[ModelEntry, None, None]:
        seen: dict[str, ModelEntry] = {}
        for path in map(Path, recent):
            if stop.is_set():
                return
            if os.path.exists(path):
                seen[os.path.realpath(path)] = found = self._read(path)
                yield found
        for model in self._find_models(folders, stop):
            if stop.is_set():
                return
            before = seen.get(os.path.realpath(model.path))
            if before is not None:  # a recent one, whose source is now known
                yield dataclasses.replace(before, name=model.title, source=model.source)
            elif model.trouble:
                yield ModelEntry(str(model.path), model.title, trouble=model.trouble, source=model.source)
            else:
                yield self._read(model.path, model.source, model.title)

    def _read(self, path: Path, source: str = "", title: str = "") -> ModelEntry:
        try:
            stamp = _stamp(path)
            key = (str(path), *stamp)
            if key not in self._known:
                self._known[key] = entry(
                    self._describe(path) if self._headers is None else self._headers.stamped(path, stamp)
                )
            found = self._known[key]
            return dataclasses.replace(found, name=title or _title(path) or found.name, source=source)
        except (EngineError, OSError) as error:
            return ModelEntry(
                str(path), title or _title(path) or model_name(path), trouble=str(error), source=source
            )

    def _on_found(self, found: ModelEntry) -> None:
        self._entries[found.path] = found
        if not self._update_timer.isActive():
            self._update_timer.start(UPDATE_MS if len(self._entries) < MANY else UPDATE_MANY_MS)

    def _on_ended(self, _result: object) -> None:
        self._job = None
        self._before = {}
        self._update_timer.stop()
        self.changed.emit(self.entries)
        self.finished.emit()


def _title(path: Path) -> str:
    from engine.hub.local.scan import known_title

    return known_title(path)


def _beside(path: Path) -> tuple[object, ...]:
    """The stamps of the vision encoders (mmproj) in the folder of a GGUF file, of which it may have one, or
    of those that belong to one of Ollama's files.
    """
    if path.suffix.lower() != ".gguf":
        from engine.weights.gguf.ollama import projectors_of

        return tuple((each.name, each.stat().st_size) for each in projectors_of(path))
    found = []
    with os.scandir(path.parent) as entries:
        for each in itertools.islice(entries, _MOST_FILES):
            if "mmproj" in each.name.lower() and each.is_file():
                facts = each.stat()
                found.append((each.name, facts.st_mtime_ns, facts.st_size))
    return tuple(sorted(found))


def _stamp(path: Path) -> tuple[object, ...]:
    """What changes when a model changes: time and size of the file and of the vision encoders beside it, or
    of the files in the folder.

    Raises OSError.
    """
    if not path.is_dir():
        facts = path.stat()
        return facts.st_mtime_ns, facts.st_size, *_beside(path)
    stamps = []
    with os.scandir(path) as entries:
        for count, found in enumerate(entries):
            if count >= _MOST_FILES:
                break
            if found.is_file():
                facts = found.stat()
                stamps.append((found.name, facts.st_mtime_ns, facts.st_size))
    return tuple(sorted(stamps))
