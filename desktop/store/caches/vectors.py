"""The vectors of texts that an embedding model read, kept between starts in a small database.

It is only a cache: if it is damaged, locked or cannot be written, the program works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.platform.folders import private_file, private_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["FILE_NAME", "VectorStore"]

log = logging.getLogger(__name__)

FILE_NAME = "passages.sqlite"
MOST_BYTES = 200_000_000
"""Of all vectors, about 250,000 passages at 384 numbers; those that were not used for longest go first."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors_1 "
    "(key BLOB PRIMARY KEY, used INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL)"
)


class VectorStore:
    """Vectors of the passages of texts, (N, E) float16, by model and text. Used by one thread."""

    def __init__(self, path: Path, most: int = MOST_BYTES) -> None:
        self.path, self._most = path, most
        self._database: sqlite3.Connection | None = None

    def get(self, model: str, pieces: Sequence[str]) -> npt.NDArray[np.float16] | None:
        """The vectors that the model with this identity made of these pieces; None if they are not known."""
        import numpy as np

        key = _key(model, pieces)
        rows = self._run("SELECT count, data FROM vectors_1 WHERE key = ?", key)
        if not rows or rows[0][0] != len(pieces) or len(rows[0][1]) % (2 * len(pieces)):
            return None
        self._run("UPDATE vectors_1 SET used = ? WHERE key = ?", time.time_ns(), key)
        return np.frombuffer(rows[0][1], np.float16).reshape(len(pieces), -1)

    def put(self, model: str, pieces: Sequence[str], vectors: npt.NDArray[np.float16]) -> None:
        """Keep vectors (N, E), one for each piece; others that take too much room go."""
        row = _key(model, pieces), time.time_ns(), len(pieces), vectors.tobytes()
        self._run("INSERT OR REPLACE INTO vectors_1 VALUES (?, ?, ?, ?)", *row)
        sizes = self._run("SELECT key, length(data) FROM vectors_1 ORDER BY used DESC")
        total = 0
        for key, size in sizes:
            total += size
            if total > self._most:
                self._run("DELETE FROM vectors_1 WHERE key = ?", key)
        if total > self._most:
            self._run("VACUUM")

    def close(self) -> None:
        """Close the file; the next `get` or `put` opens it again."""
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def _run(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._open().execute(statement, values).fetchall()
        # disk full, no permission, or locked by another program
        except (OSError, sqlite3.OperationalError) as error:
            log.info("cannot use the cache of passages: %s", error)
        except sqlite3.DatabaseError as error:
            log.warning("the cache of passages is damaged and is created again: %s", error)
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        return []

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            private_folder(self.path.parent)
            private_file(self.path)
            self._database = sqlite3.connect(self.path, timeout=0.2, isolation_level=None)
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.execute(_TABLE)
        return self._database


def _key(model: str, pieces: Sequence[str]) -> bytes:
    digest = hashlib.sha256(model.encode("utf-8", "surrogatepass"))
    for piece in pieces:
        data = piece.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()
