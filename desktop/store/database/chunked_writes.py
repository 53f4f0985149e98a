"""Long writing in short transactions: whoever waits for the file meanwhile gets it after a few
milliseconds.
"""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

from desktop.store.database.database import Database

__all__ = ["Steps"]

STEP_S = 0.02
"""A transaction ends when this long has passed, and sooner where somebody waits for the file."""


class Steps:
    """A context in which everything is written, in one transaction after another; `rest` is where one may
    end.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = contextlib.ExitStack()
        self._began = 0.0

    def __enter__(self) -> Steps:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def rest(self) -> None:
        """Commit what is written, if that is due."""
        if self._database.turn.wanted or time.monotonic() - self._began >= STEP_S:
            self._open.close()
            self._begin()

    def _begin(self) -> None:
        self._database.turn.hand_over()
        self._open.enter_context(self._database.transaction())
        self._began = time.monotonic()
