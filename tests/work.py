"""Counts work instead of timing it: the same result on slow, fast and busy machines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from desktop.store.database.database import Database

__all__ = ["calls_in", "database_work"]

_EVERY = 10
"""SQLite's instructions between two looks at the counter."""


def calls_in(work: Callable[[], object]) -> int:
    """The number of Python and C functions that `work` calls on this thread, not counting calls inside C
    functions.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@contextmanager
def database_work(database: Database) -> Iterator[list[int]]:
    """The virtual machine instructions that SQLite executes in the block, rounded to tens, as the only item
    of the list.
    """
    done = [0]

    def count() -> int:
        done[0] += _EVERY
        return 0

    connection = database._connection
    connection.set_progress_handler(count, _EVERY)
    try:
        yield done
    finally:
        connection.set_progress_handler(None, 0)
