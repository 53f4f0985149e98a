"""A lock for writing: connections of one process to the same file wait for each other here, not inside
SQLite.

SQLite has no queue: a connection that finds the file locked sleeps longer and longer before it tries again,
and may miss every gap that an import leaves. A lock of the process is handed over at once and shows whether
anybody waits for it, so that a long write can end its transaction then, and continue without a pause while
nobody does. Source: https://www.sqlite.org/c3ref/busy_timeout.html
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["WriteLock", "is_write", "write_lock_of"]

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLAC")
_locks: dict[Path, WriteLock] = {}
_guard = threading.Lock()


LOOK_S = 0.0005


class WriteLock:
    """A re-entrant lock as a context manager."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # ids of threads; adding and removing are atomic
        self._waiting: set[int] = set()
        self._committing: set[int] = set()

    @contextlib.contextmanager
    def commit(self) -> Iterator[None]:
        """A context around COMMIT, which comes after the lock was released; to be entered before that."""
        self._committing.add(threading.get_ident())
        try:
            yield
        finally:
            self._committing.discard(threading.get_ident())

    @property
    def committing(self) -> bool:
        """Whether a thread is in COMMIT, so that SQLite may still have the file locked for it."""
        return bool(self._committing)

    @property
    def contended(self) -> bool:
        """Whether a thread waits for it."""
        return bool(self._waiting)

    def wait_for_others(self) -> None:
        """Wait until every thread that waits for the lock has had it. Not to be called by the thread that
        holds it.

        A lock that is released and acquired again at once would stay with the same thread, because a waiting
        thread has to wake up first.
        """
        while self._waiting:
            time.sleep(LOOK_S)

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waiting.add(threading.get_ident())
            try:
                self._lock.acquire()
            finally:
                self._waiting.discard(threading.get_ident())

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def write_lock_of(path: Path) -> WriteLock:
    """The lock shared by all connections to this file; a separate one for each database in memory."""
    if str(path) == ":memory:":
        return WriteLock()
    with _guard:
        return _locks.setdefault(path.absolute(), WriteLock())


def is_write(sql: str) -> bool:
    """Whether the statement looks like one that changes the file."""
    return sql.lstrip()[:6].upper() in _WRITES
