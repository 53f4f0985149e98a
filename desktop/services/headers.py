"""Headers of models for the catalogue: from the cache of what was read before, else read by another process.

The window's process neither imports Numba for this, nor shares its interpreter lock with the parsing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from desktop.services.model_slot import Describe, describe
from desktop.store.headers import FILE_NAME, HeaderStore
from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from engine.folders import cache_dir

if TYPE_CHECKING:
    import subprocess

__all__ = ["HeaderReader"]

log = logging.getLogger(__name__)


class HeaderReader:
    """Reads headers as `describe` does; `stamped` keeps what it read. Used by one thread; `end` may be called by any.

    Where no other process can be started, `describe` reads them in this one.
    """

    def __init__(self, store: HeaderStore | None = None, describe: Describe = describe) -> None:
        self._store, self._describe = store, describe
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._alone = bool(getattr(sys, "frozen", False)) or not sys.executable

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
        """The facts of the model at `path`, read now. Raises `EngineError`."""
        from engine.hub.header_process import info_from_json

        child = self._started()
        if child is None:
            return self._describe(path)
        try:
            answer = self._ask(child, path)
            if "trouble" not in answer:
                return info_from_json(answer.get("info"))
        except (OSError, ValueError) as error:
            log.warning("the process that reads headers ended at %s: %s", path, error)
            self._stop()
            sentence = f"{path.name} cannot be read: reading its headers ended the process that did; get the file again."
            raise BadCheckpoint(sentence) from error
        raise BadCheckpoint(str(answer["trouble"]))

    def rest(self) -> None:
        """Nothing more is to be read for now."""
        self._stop()
        if self._store is not None:
            self._store.close()

    def end(self) -> None:
        """End at once, also while a file is being read; nothing is read any more."""
        self._ended = True
        self._stop()

    def _ask(self, child: subprocess.Popen[str], path: Path) -> dict[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(str(path)) + "\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        if not isinstance(answer, dict):
            raise ValueError("no answer")
        return answer

    def _started(self) -> subprocess.Popen[str] | None:
        """The other process; None when there is none to be had."""
        with self._lock:
            if self._ended:
                raise BadCheckpoint("The program is being closed.")
            if self._child is None and not self._alone:
                import subprocess

                from engine.hub.header_process import BOOT

                try:
                    self._child = subprocess.Popen(
                        [sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                        text=True, encoding="utf-8", creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                    )  # fmt: skip
                    assert self._child.stdin is not None
                    self._child.stdin.write(json.dumps(sys.path) + "\n")
                except OSError as error:
                    log.warning("no process for reading headers: %s", error)
                    self._alone = True
            return self._child

    def _stop(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _version() -> str:
    """The times and sizes of the engine's own files: another version of it may read something else."""
    stamps = [path.stat() for path in Path(engine.__file__).parent.rglob("*.py")]
    return f"{max(stamp.st_mtime_ns for stamp in stamps)} {sum(stamp.st_size for stamp in stamps)}"
