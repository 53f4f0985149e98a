"""Long writing in short transactions, with a rest after each: whoever waits for the file meanwhile waits a few milliseconds."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

from desktop.store.database import Database

__all__ = ["Steps"]

STEP_S = 0.003
PAUSE = 0.5
"""Rest after a transaction, as a part of its time: the window's writes find the file free."""
LEAST_PAUSE_S = 0.0005


class Steps:
    """A context in which everything is written, in one transaction after another; `rest` is where one may end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = contextlib.ExitStack()
        self._began = 0.0

    def __enter__(self) -> Steps:
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)
        self._pause()

    def rest(self) -> None:
        """Commit what is written and let others write, if that is due."""
        if time.monotonic() - self._began >= STEP_S:
            self._open.close()
            self._pause()
            self._begin()

    def _begin(self) -> None:
        self._open.enter_context(self._database.transaction())
        self._began = time.monotonic()

    def _pause(self) -> None:
        time.sleep(max(LEAST_PAUSE_S, PAUSE * (time.monotonic() - self._began)))
