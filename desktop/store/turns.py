"""Writing by turns: connections of one process to the same file wait for each other here, and not inside SQLite.

SQLite has no queue: who finds the file locked sleeps longer and longer before looking again, and may miss every gap that an
import leaves. A lock of the process is handed over at once. Source: https://www.sqlite.org/c3ref/busy_timeout.html
"""

from __future__ import annotations

import threading
from pathlib import Path

__all__ = ["Turn", "is_write", "turn_of"]

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLAC")
_turns: dict[Path, Turn] = {}
_guard = threading.Lock()


class Turn:
    """A lock that the same thread may take again, as a context."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def turn_of(path: Path) -> Turn:
    """The turn of all connections to this file; one of its own for what is in memory."""
    if str(path) == ":memory:":
        return Turn()
    with _guard:
        return _turns.setdefault(path.absolute(), Turn())


def is_write(sql: str) -> bool:
    """Whether the statement begins as one that changes the file."""
    return sql.lstrip()[:6].upper() in _WRITES
