"""Reads the headers of local models: from the cache, or in another process.

That way the window's process neither imports Numba nor shares its interpreter lock with the parser.
"""

from __future__ import annotations

import logging
from pathlib import Path

import engine
from desktop.services.engine.model_host import Describe, describe
from desktop.services.system.helper_process import HelperEnded, HelperProcess
from desktop.store.caches.headers import FILE_NAME, HeaderStore
from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from engine.platform.folders import cache_dir
from engine.words import _

__all__ = ["HeaderReader"]

log = logging.getLogger(__name__)


class HeaderReader:
    """Reads headers like `describe`; `stamped` caches the results.

    Used by one thread, except that any thread may call `end`. If no process can be started, `describe` runs
    in this one.
    """

    def __init__(self, store: HeaderStore | None = None, describe: Describe = describe) -> None:
        self._store, self._describe = store, describe
        self.helper = HelperProcess("engine.hub.local.header_process")

    def stamped(self, path: Path, stamp: tuple[object, ...]) -> ModelInfo:
        """The facts of the model at `path`, whose files have this stamp. Raises `EngineError`."""
        if self._store is None:
            self._store = HeaderStore(cache_dir() / FILE_NAME, _version())
        known = self._store.get(str(path), stamp)
        if known is None:
            known = self(path)
            self._store.put(str(path), stamp, known)
        return known

    def __call__(self, path: Path) -> ModelInfo:
        """Read the facts of the model at `path` now. Raises `EngineError`."""
        from engine.hub.local.header_process import info_from_json

        try:
            if not self.helper.start():
                return self._describe(path)
            answer = self.helper.ask(str(path))
            if isinstance(answer, dict) and "trouble" in answer:
                raise BadCheckpoint(str(answer["trouble"]))
            return info_from_json(answer["info"])
        except (HelperEnded, ValueError, TypeError, KeyError) as error:
            log.warning("the process that reads headers failed at %s: %s", path, error)
            self.helper.stop()
            from engine.weights.gguf.ollama import known_name

            sentence = _(
                "{path} cannot be read: the process that read its headers crashed. Download the file again.",
                path=known_name(path),
            )
            raise BadCheckpoint(sentence) from error

    def rest(self) -> None:
        """Free the resources until the next call."""
        self.helper.stop()
        if self._store is not None:
            self._store.close()

    def end(self) -> None:
        """Stop permanently, even while a file is being read."""
        self.helper.close()


def _version() -> str:
    """The times and sizes of the engine's own files: another version may read something else."""
    stamps = [path.stat() for path in Path(engine.__file__).parent.rglob("*.py")]
    return f"{max(stamp.st_mtime_ns for stamp in stamps)} {sum(stamp.st_size for stamp in stamps)}"
