"""Saves what can be read of a damaged file into a new one: rows in ranges of ids around bad pages, then rows of single pages."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desktop.store.database import Database
from desktop.store.errors import StoreError
from desktop.store.pages import Value, leaf_rows
from desktop.store.records import STATES, auto_title

__all__ = ["Recovery", "recover"]

log = logging.getLogger(__name__)

_MOST_FAILURES = 5_000
"""Failed reads of one table, each some 20 microseconds; then its pages are read singly."""
_TABLES = ("folders", "personas", "conversations", "messages", "message_tokens", "drafts")
_NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was saved. `gaps` is whether something of the conversations or messages could not be read."""

    conversations: int
    messages: int
    gaps: bool

    @property
    def sentence(self) -> str:
        """For the user."""
        if not self.conversations:
            return "Nothing could be read from it, so that a new one was begun."
        chats = f"{self.conversations:,} conversation{'s' * (self.conversations != 1)}"
        saved = f"{chats} with {self.messages:,} message{'s' * (self.messages != 1)} could be read from it and are here."
        return f"{saved} What is missing was on its damaged pages; an earlier copy may have it." if self.gaps else saved


def recover(damaged: Path, database: Database) -> Recovery:
    """Put all that can be read of the file `damaged`, which stays as it is, into the new and empty `database`.

    Messages whose conversation is lost get a new one of the same id; those whose parent is lost come below the message before
    them. Raises `StoreError`, with nothing written, when there is no room or the file cannot be opened.
    """
    database.execute("PRAGMA foreign_keys = OFF")
    try:
        with database.transaction():
            database.execute("UPDATE search_state SET low = ?", ((1 << 63) - 1,))  # indexed later, in steps
            whole = _read_tables(damaged, database)
            # Also where no read failed: a page with other bytes in it can end a table early without an error.
            whole = not _read_pages(damaged, database) and whole
            _mend(database)
            database.execute("UPDATE search_state SET low = (SELECT coalesce(max(id), -1) + 1 FROM messages)")
            counts = [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("conversations", "messages")]
    except OSError as error:
        raise StoreError(f"The file {damaged} cannot be read ({error.strerror}).") from error
    finally:
        database.execute("PRAGMA foreign_keys = ON")
    return Recovery(counts[0], counts[1], not whole)


# -- rows through the trees -------------------------------------------------------------------------------------------


def _read_tables(damaged: Path, database: Database) -> bool:
    """Copy each table in ranges of ids; returns whether all of every table could be read."""
    whole = True
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_opened(damaged)))
        except sqlite3.Error as error:
            log.warning("%s has no readable schema: %s", damaged, error)
            return False
        for table in _TABLES:
            target = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
            try:
                columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})") if row[1] in target]
                known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            except sqlite3.DatabaseError:
                whole = False
                continue
            if known is None:
                continue  # written before there was such a table
            if columns[:1] != target[:1]:
                whole = False
                continue
            reader = _Reader(connection, table, columns)
            fits = _SHAPES[table]
            for row in reader.rows():
                if row[0] <= 0 or not fits(row):
                    reader.whole = False
                    continue
                _insert(database, table, dict(zip(columns, row, strict=True)))
            whole = whole and reader.whole
    return whole


def _opened(damaged: Path) -> sqlite3.Connection:
    """A connection that writes nothing to the file; with its log where there is one that can be read, else without."""
    last: sqlite3.Error = sqlite3.DatabaseError("no database")
    wal = damaged.with_name(damaged.name + "-wal")
    for option in ("mode=ro",) * wal.exists() + ("mode=ro&immutable=1",):
        connection = sqlite3.connect(f"{damaged.absolute().as_uri()}?{option}", uri=True, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")  # else a file whose end is missing is refused whole
        connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.Error as error:
            connection.close()
            last = error
        else:
            return connection
    raise last


class _Reader:
    """The rows of one table: a range of ids from its front until a bad page, from its back until one, and its middle in halves."""

    def __init__(self, connection: sqlite3.Connection, table: str, columns: list[str]) -> None:
        self._connection = connection
        self._key = columns[0]
        self._sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {self._key} BETWEEN ? AND ? ORDER BY {self._key} "
        self._table = table
        self._failures = 0
        self.whole = True

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row that can be read, each once; `whole` tells afterwards whether that is all."""
        waiting = [(0, self._last())]
        while waiting and self._failures < _MOST_FAILURES:
            low, high = waiting.pop()
            low = yield from self._run(low, high, "")
            if low > high:
                continue
            high = yield from self._run(low, high, "DESC")
            if low < high:
                middle = (low + high) // 2
                waiting += [(low, middle), (middle + 1, high)]
        self.whole = self.whole and not waiting

    def _run(self, low: int, high: int, order: str) -> Generator[tuple[Any, ...], None, int]:
        """Yields the rows of a range until a failure; returns the first id behind them in this direction."""
        seen = high + 1 if order else low - 1
        try:
            for row in self._connection.execute(self._sql + order, (low, high)):
                seen = int(row[0])
                yield row
        except sqlite3.DatabaseError:
            self._failures += 1
            self.whole = False
            return seen - 1 if order else seen + 1
        return low - 1 if order else high + 1

    def _last(self) -> int:
        for sql in (f"SELECT max({self._key}) FROM {self._table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{self._table}'"):
            with contextlib.suppress(sqlite3.DatabaseError):
                row = self._connection.execute(sql).fetchone()
                return int(row[0] or 0) if row else 0
        return 1 << 31


# -- rows from single pages -------------------------------------------------------------------------------------------


def _read_pages(damaged: Path, database: Database) -> int:
    """Add the rows that only their own page still knows, told apart by the kinds of their values; returns how many they are."""
    added = 0
    names = {table: [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")] for table in _TABLES}
    for rowid, values in leaf_rows(damaged):
        table = next((table for table, fits in _SHAPES.items() if rowid > 0 and fits(values)), None)
        if table is not None:
            added += _insert(database, table, dict(zip(names[table], (rowid, *values[1:]), strict=False)))
    return added


def _is_message(row: tuple[Value, ...]) -> bool:
    if len(row) < 10 or not isinstance(row[1], int) or not isinstance(row[2], int | None) or not isinstance(row[6], _NUMBER):
        return False
    return row[1] > 0 and (row[2] is None or row[2] > 0) and _texts(row, 3, 4, 7) and row[5] in STATES and row[8] in (0, 1)


def _is_conversation(row: tuple[Value, ...]) -> bool:
    times = len(row) >= 10 and isinstance(row[3], _NUMBER) and isinstance(row[4], _NUMBER)
    return times and row[2] in (0, 1) and row[5] in (0, 1, 2) and _texts(row, 1, 6, 7, 8)


def _is_folder(row: tuple[Value, ...]) -> bool:
    return len(row) == 6 and _texts(row, 2, 4, 5) and isinstance(row[3], int)


def _is_persona(row: tuple[Value, ...]) -> bool:
    return len(row) == 8 and _texts(row, 1, 2, 4, 5, 6) and isinstance(row[3], bytes) and row[7] in (0, 1)


def _is_draft(row: tuple[Value, ...]) -> bool:
    return len(row) == 3 and isinstance(row[0], int) and isinstance(row[1], str) and isinstance(row[2], _NUMBER)


def _are_tokens(row: tuple[Value, ...]) -> bool:
    return len(row) == 2 and isinstance(row[1], bytes) and row[1][:2] == b"\x01\x78"


_SHAPES: dict[str, Callable[[tuple[Value, ...]], bool]] = {
    "messages": _is_message,
    "conversations": _is_conversation,
    "message_tokens": _are_tokens,
    "folders": _is_folder,
    "personas": _is_persona,
    "drafts": _is_draft,  # only with its own id: on a page it looks like rows of other tables
}


def _texts(row: tuple[Value, ...], *places: int) -> bool:
    return all(isinstance(row[place], str) for place in places)


# -- into the new file ------------------------------------------------------------------------------------------------


def _insert(database: Database, table: str, row: dict[str, Any]) -> int:
    """Add a row where its id is free; one that no table could hold is left out. Returns how many were added."""
    for name in ("settings", "stats"):
        if name in row and not _is_object(row[name]):
            row[name] = "{}"
    for name, (kind, usual) in _ADDED.items():
        if name in row and not isinstance(row[name], kind):
            row[name] = usual
    marks = ", ".join("?" * len(row))
    return database.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())).rowcount


_ADDED: dict[str, tuple[type, str | int]] = {"speaker": (str, ""), "speaker_persona": (int, 0), "roles": (str, "")}
"""Columns that a damaged row may lack or have in another kind, and what stands in their place then."""


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _mend(database: Database) -> None:
    """Let every reference lead somewhere again."""
    lost = database.execute(
        "SELECT conversation_id, min(created_at), max(created_at) FROM messages "
        "WHERE conversation_id NOT IN (SELECT id FROM conversations) GROUP BY conversation_id"
    ).fetchall()
    for number, first, last in lost:
        said = database.execute("SELECT text FROM messages WHERE conversation_id = ? AND role = 'user' ORDER BY id", (number,)).fetchone()
        title = auto_title(said[0]) if said else ""
        database.execute(
            "INSERT INTO conversations (id, title, created_at, updated_at) VALUES (?, ?, ?, ?)",
            (number, title or "Recovered conversation", first, last),
        )
    database.execute(
        "UPDATE messages SET parent_id = (SELECT max(id) FROM messages AS before WHERE before.conversation_id = messages.conversation_id "
        "AND before.id < messages.id) WHERE parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages AS parent "
        "WHERE parent.id = messages.parent_id AND parent.id <> messages.id AND parent.conversation_id = messages.conversation_id)"
    )
    database.execute("UPDATE folders SET parent_id = NULL WHERE parent_id NOT IN (SELECT id FROM folders) OR parent_id = id")
    database.execute("UPDATE conversations SET folder_id = NULL WHERE folder_id NOT IN (SELECT id FROM folders)")
    database.execute("UPDATE conversations SET persona_id = NULL WHERE persona_id NOT IN (SELECT id FROM personas)")
    database.execute("DELETE FROM message_tokens WHERE message_id NOT IN (SELECT id FROM messages)")
    database.execute("DELETE FROM drafts WHERE conversation_id NOT IN (SELECT id FROM conversations)")
