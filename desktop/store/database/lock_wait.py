"""How long the window waits for a lock that another program holds on the file.

Connections of this process wait for each other in `write_lock.py`, and in SQLite only for the end of a
COMMIT, which a slow disk may draw out, but which ends. Another program may hold the file for minutes, above
all one that was stopped: the window must not stand still so long.
"""

from __future__ import annotations

import sqlite3
from types import TracebackType

from desktop.store.database.errors import is_locked
from desktop.store.database.write_lock import WriteLock

__all__ = ["WAIT_MS", "LockWait"]

WAIT_MS = 80
"""Less than a reader notices."""
_COMMIT_MS = 5000
"""Longer than the COMMIT of another connection of this process takes."""


class LockWait:
    """A context around each write of the window's connection. After one that found the file locked, the next
    do not wait at all, until one of them succeeds: during a reply there are five a second.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._write_lock: WriteLock | None = None
        self._locked = False
        self._patient = False

    def begin(self, connection: sqlite3.Connection, write_lock: WriteLock) -> None:
        """Use this connection, to the file with this lock, from now on."""
        self._connection, self._write_lock = connection, write_lock
        self._set(locked=False)

    def _set(self, locked: bool) -> None:
        self._locked = locked
        self._wait(0 if locked else WAIT_MS)

    def _wait(self, milliseconds: int) -> None:
        if self._connection is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

    def __enter__(self) -> None:
        self._patient = self._write_lock is not None and self._write_lock.committing
        if self._patient:
            self._wait(_COMMIT_MS)

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        locked = is_locked(error)
        if self._patient or (locked != self._locked and (locked or error is None)):
            self._set(locked)
