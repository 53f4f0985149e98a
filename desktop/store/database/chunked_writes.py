"""Long writes in short transactions: whoever waits for the file gets it after a few milliseconds."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

from desktop.store.database.database import Database

__all__ = ["ChunkedWrites"]

STEP_S = 0.02
"""A transaction ends after this long, or sooner if somebody waits for the file."""


class ChunkedWrites:
    """A context for writing in one transaction after another; one may end at each call of `pause`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = contextlib.ExitStack()
        self._began = 0.0

    def __enter__(self) -> ChunkedWrites:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def pause(self) -> None:
        """Commit what has been written, if that is due."""
        if self._database.write_lock.contended or time.monotonic() - self._began >= STEP_S:
            self._open.close()
            self._begin()

    def _begin(self) -> None:
        self._database.write_lock.wait_for_others()
        self._open.enter_context(self._database.transaction())
        self._began = time.monotonic()
