"""What recovery knows about the tables, from the schema: which hold user data, and which rows fit them."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from desktop.store.conversations.records import STATES
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.page_reader import Value
from engine.json_value import json_value
from engine.words import N_, translate

__all__ = ["BOOKKEEPING", "Column", "Table", "content_tables", "is_object", "label"]

BOOKKEEPING = frozenset({"migrations", "search_state"})
"""Tables that a new file fills on its own. Those of the search index belong to a virtual table."""
_KINDS: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (int, float),
    "TEXT": (str,),
    "BLOB": (bytes,),
}
_WORDS = {
    "personas": "personas", "drafts": "drafts", "draft_files": N_("files attached to drafts"),
    "prompts": N_("saved prompts"),
    "queued_messages": N_("queued messages"), "message_tokens": N_("tokens of replies"),
    "message_origins": N_("details of replies"), "imports": N_("record of imported chats"),
    "imported_messages": N_("record of imported messages"), "pictures": N_("pictures"),
    "message_pictures": N_("record of the messages' pictures"),
    "whole_texts": N_("whole texts of trimmed files"),
}  # fmt: skip


def label(table: str) -> str:
    """The content of the table in the user's words."""
    return translate(_WORDS[table]) if table in _WORDS else table.replace("_", " ")


class Column(NamedTuple):
    """One column.

    `kinds` are the Python types of its values; `usual`, whether a missing or broken value may be left out of
    an INSERT; `is_object`, whether it holds a JSON object; `refers`, whether it is the id of a row.
    """

    name: str
    kinds: tuple[type, ...]
    nullable: bool
    usual: bool
    is_object: bool
    refers: bool

    def fits(self, value: Any) -> bool:
        """Whether the column can hold the value."""
        if value is None:
            return self.nullable
        if self.refers and isinstance(value, int) and not 0 < value < FIRST_TEMPORARY:
            return False
        return isinstance(value, self.kinds)


class Table(NamedTuple):
    """One table.

    `alias` is the index of the column that aliases the rowid, or -1; `key` names the primary key of a WITHOUT
    ROWID table and is otherwise empty; `first` is its original number of columns: no record is shorter.
    """

    name: str
    columns: tuple[Column, ...]
    alias: int
    key: tuple[str, ...]
    first: int

    @property
    def order(self) -> tuple[Column, ...]:
        """The columns in the order of a stored record: without a rowid, the key comes first."""
        first = [column for name in self.key for column in self.columns if column.name == name]
        return (*first, *(column for column in self.columns if column not in first))

    def row(self, rowid: int, values: Sequence[Value]) -> dict[str, Value] | None:
        """The values of a record by column name; None if it cannot be of this table.

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
        """The part of a row that can be written; broken values with a default are left out.

        None if a value without a default is broken.
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
    """The tables with user data, in the order they were created, so that references come after what they
    refer to.

    These are all tables but the search index, SQLite's own, and `BOOKKEEPING`.
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
    """The number of columns each table had after the migration that created it."""
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
    return isinstance(value, str) and isinstance(json_value(value), dict)


def _is_packed(row: Mapping[str, Any]) -> bool:
    data = row.get("data")
    return isinstance(data, bytes) and data[:2] == b"\x01\x78"


def _is_picture(row: Mapping[str, Any]) -> bool:
    return re.fullmatch("[0-9a-f]{32}", str(row.get("key"))) is not None


_MARKS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "messages": lambda row: row.get("state") in STATES,
    "message_tokens": _is_packed,  # the search index has a table with the same columns
    "pictures": _is_picture,
    "message_pictures": _is_picture,
    "whole_texts": lambda row: _is_picture(row) and bytes(row.get("data") or b"")[:1] == b"\x78",
}
"""Checks that the declared types do not express."""
