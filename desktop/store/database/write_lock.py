"""Writing by turns: connections of one process to the same file wait for each other here, and not inside
SQLite.

SQLite has no queue: who finds the file locked sleeps longer and longer before looking again, and may miss
every gap that an import leaves. A lock of the process is handed over at once, and tells whether anybody waits
for it: who writes much ends its transaction then, and goes on without a rest as long as nobody does. Source:
https://www.sqlite.org/c3ref/busy_timeout.html
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

__all__ = ["Turn", "is_write", "turn_of"]

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLAC")
_turns: dict[Path, Turn] = {}
_guard = threading.Lock()


LOOK_S = 0.0005


class Turn:
    """A lock that the same thread may take again, as a context."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # threads; adding and removing is one step each, so that it needs no lock
        self._waiting: set[int] = set()

    @property
    def wanted(self) -> bool:
        """Whether a thread waits for it."""
        return bool(self._waiting)

    def hand_over(self) -> None:
        """Wait until all who wait for it have it, or had it; not for who holds it. A lock that is let go and
        taken again at once would stay with the same thread: whoever waits has to wake up first.
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


def turn_of(path: Path) -> Turn:
    """The turn of all connections to this file; one of its own for what is in memory."""
    if str(path) == ":memory:":
        return Turn()
    with _guard:
        return _turns.setdefault(path.absolute(), Turn())


def is_write(sql: str) -> bool:
    """Whether the statement begins as one that changes the file."""
    return sql.lstrip()[:6].upper() in _WRITES
