"""What was read from models' headers, kept between starts: a small database that may vanish at any time.

It is a cache: when it is damaged, locked or cannot be written, there is none, and nothing else happens.
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
    """Facts of models by path, each good as long as its `stamp` (times and sizes of files) is the same.

    Used by one thread.

    `version` tells apart what different versions of the program read; the entries of others are dropped.
    """

    def __init__(self, path: Path, version: str) -> None:
        self._path, self._version = path, version
        self._database: sqlite3.Connection | None = None
        self._useless = False

    def get(self, path: str, stamp: Sequence[object]) -> ModelInfo | None:
        """What is known of the model at `path`; None when that is nothing, or it was read from other
        files.
        """
        from engine.hub.local.header_process import info_from_json

        rows = self._run(
            "SELECT info FROM headers WHERE path = ? AND stamp = ?", _text(path), _stamp_text(stamp)
        )
        try:
            return info_from_json(json.loads(rows[0][0])) if rows else None
        except (TypeError, ValueError, RecursionError):
            return None

    def put(self, path: str, stamp: Sequence[object], info: ModelInfo) -> None:
        """Keep what was read."""
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
        # no room, no right to write, or another program is at it
        except (OSError, sqlite3.OperationalError) as error:
            log.info("the cache of headers cannot be used: %s", error)
            self._useless = True  # until `close`: a thousand models are not to wait a thousand times
        except sqlite3.DatabaseError as error:
            log.warning("the cache of headers is damaged and begun anew: %s", error)
            self._remove()
        return []

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            private_folder(self._path.parent)
            private_file(self._path)
            self._database = sqlite3.connect(self._path, timeout=0.2, isolation_level=None)
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
            os.unlink(self._path)


def _text(path: str) -> str:
    """A file name that is no Unicode cannot be a text of the database as it is."""
    return path.encode("utf-8", "backslashreplace").decode()


def _stamp_text(stamp: Sequence[object]) -> str:
    return _text(json.dumps(stamp))
