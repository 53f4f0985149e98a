"""Recovers what can be read of a damaged file into a new one, table by table.

Rows are read in ranges of ids around bad pages, then from single pages. The tables are read from the schema
(`recovery_tables.py`), so a new table needs no change here.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from desktop.store.conversations.records import auto_title
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database
from desktop.store.database.errors import StoreError
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.page_reader import Value, index_records, leaf_rows
from desktop.store.database.recovery_tables import Table, content_tables, label
from engine.words import _, ngettext

__all__ = ["Recovery", "recover"]

log = logging.getLogger(__name__)

_MOST_FAILURES = 5_000
"""Failed reads of one table, about 20 microseconds each, after which its pages are read one by one."""
Key = tuple[Any, ...]


class Recovery(NamedTuple):
    """What was saved: the number of rows in each table, and the tables of which rows are missing."""

    rows: Mapping[str, int]
    lost: tuple[str, ...]

    @property
    def conversations(self) -> int:
        """The number of conversations saved."""
        return self.rows.get("conversations", 0)

    @property
    def messages(self) -> int:
        """The number of messages saved."""
        return self.rows.get("messages", 0)

    @property
    def gaps(self) -> bool:
        """Whether something could not be read."""
        return bool(self.lost)

    @property
    def sentence(self) -> str:
        """The result as a sentence for the user."""
        if not any(self.rows.values()):
            return _("Nothing could be recovered, so a new file was started.")
        chats = ngettext("{n} chat", "{n} chats", self.conversations)
        messages = ngettext("{n} message", "{n} messages", self.messages)
        saved = _("Recovered {chats} with {messages}.", chats=chats, messages=messages)
        if not self.lost:
            return _("{saved} Nothing is missing.", saved=saved)
        missing = ", ".join(map(label, self.lost))
        return _(
            "{saved} Content on damaged pages may be missing from: {missing}. An earlier backup may have it.",
            saved=saved,
            missing=missing,
        )


def recover(damaged: Path, database: Database) -> Recovery:
    """Copy all that can be read of the file `damaged`, which stays as it is, into the new, empty `database`.

    Messages, drafts and queued messages without their conversation get a new one with the same id; messages
    without their parent are attached to the previous message. Raises `StoreError`, with nothing written, if
    there is no room or the file cannot be opened.
    """
    tables = content_tables(database)
    database.execute("PRAGMA foreign_keys = OFF")
    try:
        with database.transaction():
            database.execute("UPDATE search_state SET low = ?", ((1 << 63) - 1,))  # indexed later, in steps
            with contextlib.ExitStack() as stack:
                connection = _opened(damaged)
                if connection is not None:
                    stack.enter_context(contextlib.closing(connection))
                broken = {table.name for table in tables if not _read_table(connection, table, database)}
                # Even if no read failed: a page of other bytes can end a table early without an error.
                broken |= _read_pages(damaged, tables, database)
                lost = tuple(
                    table.name
                    for table in tables
                    if _is_lost(connection, table, database, table.name in broken)
                )
            _mend(database, tables)
            database.execute("UPDATE search_state SET low = (SELECT coalesce(max(id), -1) + 1 FROM messages)")
            rows = {
                table.name: database.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
                for table in tables
            }
    except OSError as error:
        raise StoreError(
            _("The file {damaged} cannot be read ({strerror}).", damaged=damaged, strerror=error.strerror)
        ) from error
    finally:
        database.execute("PRAGMA foreign_keys = ON")
    for name, count in rows.items():
        log.info(
            "%s: %d rows of %s were saved%s",
            damaged.name,
            count,
            name,
            "; some may be missing" if name in lost else "",
        )
    return Recovery(rows, lost)


def _opened(damaged: Path) -> sqlite3.Connection | None:
    """A connection that writes nothing to the file, with its log if that can be read.

    None if the schema cannot be read.
    """
    wal = damaged.with_name(damaged.name + "-wal")
    for option in ("mode=ro",) * wal.exists() + ("mode=ro&immutable=1",):
        with contextlib.ExitStack() as stack:
            try:
                connection = sqlite3.connect(
                    f"{damaged.absolute().as_uri()}?{option}", uri=True, isolation_level=None
                )
                stack.callback(connection.close)
                # otherwise SQLite refuses a file whose end is missing
                connection.execute("PRAGMA writable_schema = ON")
                connection.text_factory = lambda data: data.decode(errors="replace")
                connection.execute("SELECT name FROM sqlite_master").fetchall()
            except sqlite3.Error as error:
                log.warning("%s has no readable schema: %s", damaged, error)
                continue
            stack.pop_all()
            return connection
    return None


def _read_table(connection: sqlite3.Connection | None, table: Table, database: Database) -> bool:
    """Copy what can be read of a table; returns whether that is all of it."""
    if connection is None:
        return False
    try:
        there = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table.name})")]
        if not there:
            return table.name not in _tables_then(connection)
        columns = [column.name for column in table.columns if column.name in there]
        reader = _Reader(connection, table, columns)
        torn = _is_torn(connection)
        for rowid, *values in reader.rows():
            if torn and any(isinstance(value, str) and value.endswith("\0") for value in values):
                reader.whole = False  # the file ends within this row
            elif not _insert(database, table, rowid, table.mended(dict(zip(columns, values, strict=True)))):
                reader.whole = False
    except sqlite3.DatabaseError as error:
        log.warning("cannot read the table %s: %s", table.name, error)
        return False
    return reader.whole


def _is_torn(connection: sqlite3.Connection) -> bool:
    """Whether the file ends within a page, the rest of which SQLite reads as zeros."""
    with open(connection.execute("PRAGMA database_list").fetchone()[2], "rb") as file:
        page = int.from_bytes(file.read(18)[16:])
        return bool(file.seek(0, 2) % (65536 if page == 1 else page or 1))


def _tables_then(connection: sqlite3.Connection) -> frozenset[str]:
    """The tables of a file according to its recorded migrations; all known tables if these cannot be read."""
    try:
        count = connection.execute("SELECT count(*) FROM migrations").fetchone()[0]
    except sqlite3.DatabaseError:
        count = 0
    then = Database(MEMORY, MIGRATIONS[:count] or MIGRATIONS)
    try:
        return frozenset(table.name for table in content_tables(then))
    finally:
        then.close()


class _Reader:
    """The rows of one table, each preceded by its rowid (or None).

    With rowids, a range is read from its start up to a bad page, from its end back to one, and the rest in
    halves. With other keys, the table is read from the start and from the end.
    """

    def __init__(self, connection: sqlite3.Connection, table: Table, columns: Sequence[str]) -> None:
        self._connection = connection
        self._table = table
        key = "NULL" if table.key else "rowid"
        self._sql = f"SELECT {', '.join([key, *columns])} FROM {table.name} NOT INDEXED "
        self._failures = 0
        self.whole = True

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row that can be read; afterwards `whole` is whether that is all. Rows without rowids may come
        twice.
        """
        if self._table.key:
            yield from self._keyed()
            return
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

    def _keyed(self) -> Iterator[tuple[Any, ...]]:
        for order in ("", " DESC"):
            try:
                yield from self._connection.execute(
                    f"{self._sql} ORDER BY {', '.join(key + order for key in self._table.key)}"
                )
                return
            except sqlite3.DatabaseError:
                self.whole = False

    def _run(self, low: int, high: int, order: str) -> Generator[tuple[Any, ...], None, int]:
        """Yield the rows of a range up to a failure; returns the first id after them in this direction."""
        seen = high + 1 if order else low - 1
        try:
            for row in self._connection.execute(
                f"{self._sql} WHERE rowid BETWEEN ? AND ? ORDER BY rowid {order}", (low, high)
            ):
                seen = int(row[0])
                yield row
        except sqlite3.DatabaseError:
            self._failures += 1
            self.whole = False
            return seen - 1 if order else seen + 1
        return low - 1 if order else high + 1

    def _last(self) -> int:
        name = self._table.name
        for sql in (
            f"SELECT max(rowid) FROM {name}",
            f"SELECT seq FROM sqlite_sequence WHERE name = '{name}'",
        ):
            with contextlib.suppress(sqlite3.DatabaseError):
                row = self._connection.execute(sql).fetchone()
                return int(row[0] or 0) if row else 0
        return 1 << 31


def _is_lost(connection: sqlite3.Connection | None, table: Table, database: Database, broken: bool) -> bool:
    """Whether a row of the table is missing, according to the indexes that can be read without an error.

    If reading the table failed, one index with more rows is enough; otherwise a row must be missing according
    to all of them.
    """
    if connection is None:
        return True
    what = ", ".join(table.key) or "rowid"
    known: list[set[Key]] = []
    with contextlib.suppress(sqlite3.DatabaseError):
        for _unused, index, _unused, _unused, partial in connection.execute(
            f"PRAGMA index_list({table.name})"
        ).fetchall():
            with contextlib.suppress(sqlite3.DatabaseError):
                if not partial:
                    known.append(
                        set(
                            connection.execute(
                                f'SELECT {what} FROM {table.name} INDEXED BY "{index}"'
                            ).fetchall()
                        )
                    )
    if not known:
        return broken
    expected = set.union(*known) if broken else set.intersection(*known)
    return not expected <= set(database.execute(f"SELECT {what} FROM {table.name}").fetchall())


def _read_pages(damaged: Path, tables: Iterable[Table], database: Database) -> set[str]:
    """Add rows that only their own page has, identified by the types of their values; returns the affected
    tables.
    """
    added: set[str] = set()

    def add(candidates: Sequence[Table], rowid: int | None, values: tuple[Value, ...]) -> None:
        found = [(table, row) for table in candidates if (row := table.row(rowid or 0, values)) is not None]
        if len(found) == 1:  # a row that fits several tables is dropped
            table, row = found[0]
            if _insert(database, table, rowid, table.mended(row)):
                added.add(table.name)

    with_ids = [table for table in tables if not table.key]
    without = [table for table in tables if table.key]
    # a draft without its later columns looks like the record of a migration
    notes = set(database.execute("SELECT number, name FROM migrations").fetchall())
    for rowid, values in leaf_rows(damaged):
        if len(values) != 3 or (rowid, values[1]) not in notes:
            add(with_ids, rowid, values)
    for values in index_records(damaged):
        add(without, None, values)
    return added


def _insert(database: Database, table: Table, rowid: int | None, row: Mapping[str, Any] | None) -> bool:
    """Add a row if its key is free and the table can hold it; returns whether it was added."""
    if row is None or (rowid is not None and not 0 < rowid < FIRST_TEMPORARY):
        return False
    values = {**row, "rowid": rowid} if rowid is not None and table.alias < 0 else dict(row)
    marks = ", ".join("?" * len(values))
    sql = f"INSERT OR IGNORE INTO {table.name} ({', '.join(values)}) VALUES ({marks})"
    return database.execute(sql, tuple(values.values())).rowcount > 0


_WORDS_IN = ("messages", "drafts", "draft_files", "queued_messages")
"""Tables with what the user or a model wrote in a conversation, which is created again for them."""


def _mend(database: Database, tables: Iterable[Table]) -> None:
    """Make every reference valid again."""
    for name in _WORDS_IN:
        _make_conversations(database, name)
    # a parent is always older than its children: anything else would be a cycle or lead to one
    database.execute(
        "UPDATE messages SET parent_id = (SELECT max(id) FROM messages AS before WHERE "
        "before.conversation_id = messages.conversation_id AND before.id < messages.id) WHERE parent_id IS "
        "NOT NULL AND NOT EXISTS (SELECT 1 FROM messages AS parent WHERE parent.id = messages.parent_id "
        "AND parent.id < messages.id AND parent.conversation_id = messages.conversation_id)"
    )
    database.execute("UPDATE folders SET parent_id = NULL WHERE parent_id NOT IN (SELECT id FROM folders)")
    database.execute(f"UPDATE folders SET parent_id = NULL WHERE id NOT IN ({_REACHED})")
    # missing in older files, or not set by a trigger because the conversation was inserted later
    database.execute("UPDATE conversations SET deleted_at = updated_at WHERE deleted AND deleted_at IS NULL")
    database.execute(
        "UPDATE conversations SET holes = 1 WHERE id IN (SELECT conversation_id FROM messages WHERE deleted)"
    )
    # in the order of the schema, because later tables may refer to rows removed here
    for table in tables:
        nullable = {column.name for column in table.columns if column.nullable}
        for _unused, _unused, parent, column, target, *_unused in database.execute(
            f"PRAGMA foreign_key_list({table.name})"
        ).fetchall():
            change = (
                f"UPDATE {table.name} SET {column} = NULL"
                if column in nullable
                else f"DELETE FROM {table.name}"
            )
            database.execute(
                f"{change} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT {target or 'rowid'} FROM "
                f"{parent})"
            )


_REACHED = (
    "WITH RECURSIVE reached (id) AS (SELECT id FROM folders WHERE parent_id IS NULL "
    "UNION SELECT folders.id FROM reached JOIN folders ON parent_id = reached.id) SELECT id FROM reached"
)
"""The folders that can be reached from the top: not those in a cycle or below one."""


def _make_conversations(database: Database, table: str) -> None:
    """Create each conversation that is missing while the table has something of it."""
    times = "min(created_at), max(created_at)" if table == "messages" else "NULL, NULL"
    found = database.execute(
        f"SELECT conversation_id, {times} FROM {table} WHERE conversation_id NOT IN (SELECT id FROM "
        "conversations) GROUP BY conversation_id"
    ).fetchall()
    now = time.time()
    for number, first, last in found:
        first_text = database.execute(
            "SELECT text FROM messages WHERE conversation_id = ? AND role = 'user' ORDER BY id", (number,)
        ).fetchone()
        title = auto_title(first_text[0]) if first_text else ""
        database.execute(
            "INSERT INTO conversations (id, title, created_at, updated_at) VALUES (?, ?, ?, ?)",
            (number, title or "Recovered chat", first or now, last or now),
        )
