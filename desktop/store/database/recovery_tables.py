"""What a recovery knows of the tables, read from the schema: which hold the user's data, and which rows
can belong to which.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desktop.store.conversations.records import STATES
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.page_reader import Value

__all__ = ["BOOKKEEPING", "Column", "Table", "content_tables", "is_object", "label"]

BOOKKEEPING = frozenset({"migrations", "search_state"})
"""Tables that a new file fills by itself.

Those of the search index are told apart by the schema: they belong to a virtual table.
"""
_KINDS: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (int, float),
    "TEXT": (str,),
    "BLOB": (bytes,),
}
_WORDS = {
    "personas": "personas", "drafts": "drafts", "draft_files": "files of drafts", "prompts": "saved prompts",
    "queued_messages": "queued messages", "message_tokens": "tokens of replies",
    "message_origins": "origins of replies", "imports": "record of imported conversations",
    "imported_messages": "record of imported messages",
}  # fmt: skip


def label(table: str) -> str:
    """The table's content in the user's words."""
    return _WORDS.get(table, table.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `kinds` are the Python types of its values; `usual` is whether a value that is missing or
    broken may be left out of an INSERT; `is_object` is whether it holds a JSON object; `refers` is whether it
    is the id of a row.
    """

    name: str
    kinds: tuple[type, ...]
    nullable: bool
    usual: bool
    is_object: bool
    refers: bool

    def fits(self, value: Any) -> bool:
        """Whether the value can stand here."""
        if value is None:
            return self.nullable
        if self.refers and isinstance(value, int) and not 0 < value < FIRST_TEMPORARY:
            return False
        return isinstance(value, self.kinds)


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `alias` is the place of the column that is the rowid itself, -1 for none; `key` names the
    columns of the primary key where there is no rowid, and is empty where there is one. `first` columns it
    had when it was made: no record is shorter.
    """

    name: str
    columns: tuple[Column, ...]
    alias: int
    key: tuple[str, ...]
    first: int

    @property
    def order(self) -> tuple[Column, ...]:
        """The columns in the order of a stored record: the key first where there is no rowid."""
        first = [column for name in self.key for column in self.columns if column.name == name]
        return (*first, *(column for column in self.columns if column not in first))

    def row(self, rowid: int, values: Sequence[Value]) -> dict[str, Value] | None:
        """The values of a record by the names of their columns, or None when it cannot be one of this table.

        Columns that were added later may be missing at the end.
        """
        order = self.order
        if not self.first <= len(values) <= len(order):
            return None
        found: dict[str, Value] = {}
        for place, (column, value) in enumerate(zip(order, values, strict=False)):
            if place == self.alias and not self.key:
                if value is not None:
                    return None
                found[column.name] = rowid
            elif column.fits(value):
                found[column.name] = value
            else:
                return None
        return found if self.name not in _MARKS or _MARKS[self.name](found) else None

    def mended(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """What of a row can be written: broken values that have a default are left to it.

        None when one without a default is broken.
        """
        found: dict[str, Any] = {}
        for column in self.columns:
            if column.name not in row:
                continue
            value = row[column.name]
            if column.fits(value) and not (column.is_object and not is_object(value)):
                found[column.name] = value
            elif not column.usual:
                return None
        return found if self.name not in _MARKS or _MARKS[self.name](found) else None


def content_tables(database: Database) -> tuple[Table, ...]:
    """The tables that hold what the user would miss, in the order they were made, so that what refers comes
    after what it refers to.

    All of the schema but the search index, what SQLite keeps for itself, and `BOOKKEEPING`.
    """
    rows = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
    ).fetchall()
    virtual = [str(name) for name, sql in rows if re.match(r"\s*CREATE\s+VIRTUAL", sql, re.IGNORECASE)]
    found = []
    for name, sql in rows:
        shadow = any(name == index or name.startswith(f"{index}_") for index in (*virtual, "message_search"))
        if not shadow and name not in BOOKKEEPING and not name.startswith("sqlite_"):
            found.append(_table(database, str(name), str(sql)))
    return tuple(found)


def _table(database: Database, name: str, sql: str) -> Table:
    refers = {str(row[3]) for row in database.execute(f'PRAGMA foreign_key_list("{name}")')}
    keyed: dict[int, str] = {}
    columns = []
    for _, column, kind, required, default, place in database.execute(f'PRAGMA table_info("{name}")'):
        kinds = _KINDS.get(str(kind).upper(), (int, float, str, bytes))
        nullable = not required and not place
        columns.append(
            Column(
                str(column), kinds, nullable, default is not None, default == "'{}'", str(column) in refers
            )
        )
        if place:
            keyed[int(place)] = str(column)
    key = tuple(keyed[place] for place in sorted(keyed))
    if re.search(r"WITHOUT\s+ROWID\s*$", sql, re.IGNORECASE):
        return Table(name, tuple(columns), -1, key, len(columns))
    names = [column.name for column in columns]
    is_alias = len(key) == 1 and columns[names.index(key[0])].kinds == (int,)
    return Table(
        name,
        tuple(columns),
        names.index(key[0]) if is_alias else -1,
        (),
        _first_columns().get(name, len(columns)),
    )


@functools.cache
def _first_columns() -> dict[str, int]:
    """How many columns each table had when the migration that made it was over."""
    found: dict[str, int] = {}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for step in MIGRATIONS:
            step(connection)
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                if name not in found:
                    found[name] = len(connection.execute(f'PRAGMA table_info("{name}")').fetchall())
    return found


def is_object(value: object) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _is_packed(row: Mapping[str, Any]) -> bool:
    data = row.get("data")
    return isinstance(data, bytes) and data[:2] == b"\x01\x78"


_MARKS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "messages": lambda row: row.get("state") in STATES,
    "message_tokens": _is_packed,  # the blocks of the search index have the same columns
}
"""What the declared types do not tell."""
