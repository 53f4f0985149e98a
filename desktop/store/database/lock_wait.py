"""How long the window waits for a lock that another program holds on the file.

Connections of this process wait for each other in `write_lock.py`, and in SQLite only for the end of a
COMMIT. A program that holds the file longer may hold it for minutes, as may one that was stopped: the window
must not stand still so long.
"""

from __future__ import annotations

import sqlite3
from types import TracebackType

from desktop.store.database.errors import is_locked

__all__ = ["WAIT_MS", "LockWait"]

WAIT_MS = 80
"""Less than a reader notices."""


class LockWait:
    """A context around each write of the window's connection. After one that found the file locked, the next
    do not wait at all, until one of them succeeds: during a reply there are five a second.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._locked = False

    def begin(self, connection: sqlite3.Connection) -> None:
        """Use this connection from now on."""
        self._connection = connection
        self._set(locked=False)

    def _set(self, locked: bool) -> None:
        self._locked = locked
        if self._connection is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {0 if locked else WAIT_MS}")

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        locked = is_locked(error)
        if locked != self._locked and (locked or error is None):
            self._set(locked)
