"""Which rows of a table have changed, so that what was read of them can be kept while it is true.

Temporary triggers tell the rows that one connection changes, also those that a foreign key deletes; of other
connections SQLite tells only that one of them has committed something.
Source: https://www.sqlite.org/lang_createtrigger.html#temp_triggers_on_non_temp_tables and
https://www.sqlite.org/pragma.html#pragma_data_version
"""

from __future__ import annotations

import itertools
import sqlite3

__all__ = ["RowChanges"]

_EVENTS = (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
_numbers = itertools.count()
"""Several may watch one connection."""


class RowChanges:
    """The ids of the rows of `table` that have changed since `take` was last called; at first all have."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._name = f"{table}_changed_{next(_numbers)}"
        self._ids: set[int] = set()
        self._all = True
        self._version = 0

    def watch(self, connection: sqlite3.Connection) -> None:
        """Look at the changes of a connection that was opened just now, to whichever file. Raises
        sqlite3.Error.
        """
        self._all = True
        name = self._name
        connection.create_function(name, 1, self._ids.add)
        for event, row in _EVENTS:
            connection.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS {name}_{event} AFTER {event} ON main.{self._table} "
                f"BEGIN SELECT {name}({row}.id); END"
            )

    def undone(self) -> None:
        """A transaction was rolled back: what was read in it is no longer so, and no trigger tells."""
        self._all = True

    def take(self, version: int) -> frozenset[int] | None:
        """The ids; None if any row may have changed. `version` is the connection's PRAGMA data_version."""
        everything = self._all or version != self._version
        found = None if everything else frozenset(self._ids)
        self._ids.clear()
        self._all, self._version = False, version
        return found
