"""Facts from the headers of model files, kept between starts in a small database.

It is only a cache: if it is damaged, locked or cannot be written, the program works without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.core import ModelInfo
from engine.platform.folders import private_file, private_folder

__all__ = ["FILE_NAME", "HeaderStore"]

log = logging.getLogger(__name__)

FILE_NAME = "headers.sqlite"
MOST_MODELS = 20_000
_TABLE = "CREATE TABLE IF NOT EXISTS headers (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, info TEXT NOT NULL)"


class HeaderStore:
    """Facts of models by path, each valid as long as its `stamp` (times and sizes of files) is the same.

    Used by one thread. Entries written by another `version` of the program are dropped.
    """

    def __init__(self, path: Path, version: str) -> None:
        self.path, self._version = path, version
        self._database: sqlite3.Connection | None = None
        self._useless = False

    def get(self, path: str, stamp: Sequence[object]) -> ModelInfo | None:
        """What is known of the model at `path`; None if nothing is, or if it was read from other files."""
        from engine.hub.local.header_process import info_from_json

        rows = self._run(
            "SELECT info FROM headers WHERE path = ? AND stamp = ?", _text(path), _stamp_text(stamp)
        )
        try:
            return info_from_json(json.loads(rows[0][0])) if rows else None
        except (TypeError, ValueError, RecursionError):
            return None

    def put(self, path: str, stamp: Sequence[object], info: ModelInfo) -> None:
        from engine.hub.local.header_process import info_to_json

        text = json.dumps(info_to_json(info))
        self._run("INSERT OR REPLACE INTO headers VALUES (?, ?, ?)", _text(path), _stamp_text(stamp), text)

    def close(self) -> None:
        """Close the file; the next `get` or `put` opens it again."""
        database, self._database, self._useless = self._database, None, False
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def _run(self, statement: str, *values: str) -> list[Any]:
        if self._useless:
            return []
        try:
            return self._open().execute(statement, values).fetchall()
        # disk full, no permission, or locked by another program
        except (OSError, sqlite3.OperationalError) as error:
            log.info("cannot use the header cache: %s", error)
            self._useless = True  # until `close`: otherwise each of a thousand models would wait
        except sqlite3.DatabaseError as error:
            log.warning("the header cache is damaged and is created again: %s", error)
            self._remove()
        return []

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            private_folder(self.path.parent)
            private_file(self.path)
            self._database = sqlite3.connect(self.path, timeout=0.2, isolation_level=None)
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("PRAGMA journal_mode = MEMORY")
            self._database.execute(_TABLE)
            self._database.execute("CREATE TABLE IF NOT EXISTS version (name TEXT)")
            (count,) = self._database.execute("SELECT count(*) FROM headers").fetchone()
            if (
                self._database.execute("SELECT name FROM version").fetchall() != [(self._version,)]
                or count > MOST_MODELS
            ):
                self._database.execute("DELETE FROM headers")
                self._database.execute("DELETE FROM version")
                self._database.execute("INSERT INTO version VALUES (?)", (self._version,))
        return self._database

    def _remove(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def _text(path: str) -> str:
    """The path as Unicode, which not every file name is."""
    return path.encode("utf-8", "backslashreplace").decode()


def _stamp_text(stamp: Sequence[object]) -> str:
    return _text(json.dumps(stamp))
