"""Open WebUI's own database, `webui.db`: the rows of its table `chat`, one at a time, as the objects that its
export holds.

The file is only read, and so that nothing appears beside it. What a row may hold is bounded; a row that
cannot be read is told and passed over. Columns: `backend/open_webui/models/chats.py` of
open-webui/open-webui; old versions lack some.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from desktop.store.transfer.importers.json_entries import Entry, Flaw

__all__ = ["MAGIC", "chat_rows", "has_chats"]

MAGIC = b"SQLite format 3\x00"
_COLUMNS = (
    "id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "variables", "folder_id",
    "tasks", "summary", "share_id", "current_message_id",
)  # fmt: skip
_JSON = ("meta", "variables", "tasks")
_MOST_FOLDERS, _DEEPEST = 100_000, 50
_STEPS = 10_000
"""Instructions of SQLite between two looks at whether to stop."""


def has_chats(path: Path) -> bool:
    """Whether it is a database that holds Open WebUI's chats; False when it cannot be read."""
    try:
        with contextlib.closing(_opened(path)) as database:
            return _columns(database) is not None
    except (sqlite3.Error, OSError):
        return False


def chat_rows(
    path: Path, cancel: Callable[[], bool], most_bytes: int
) -> Iterator[Entry | Flaw | tuple[int, int]]:
    """The chats of a database, in the order of their rows, with flaws in their places; pairs are (rows done,
    all rows).

    Ends early when `cancel()` turns true. A database of something else is one flaw without a place.
    """
    try:
        with contextlib.closing(_opened(path)) as database:
            database.set_progress_handler(cancel, _STEPS)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most_bytes)
            columns = _columns(database)
            if columns is None:
                yield Flaw(
                    "",
                    "it is a SQLite database, but not Open WebUI's: it has no table “chat” with the "
                    "columns “id” and “chat”",
                    0,
                )
                return
            yield from _rows(database, columns, cancel, most_bytes)
    except (sqlite3.Error, OSError) as error:
        if not cancel():
            yield Flaw("", f"the database cannot be read ({error})", 0)


def _opened(path: Path) -> sqlite3.Connection:
    """Without a journal beside it the file is taken as it stands; with one, Open WebUI may be running, and
    SQLite joins both.
    """
    journal = path.with_name(f"{path.name}-wal")
    alone = not journal.exists() or not journal.stat().st_size
    database = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if alone else ''}", uri=True, timeout=2
    )
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")  # what the file defines must not run anything
    database.execute("PRAGMA query_only = ON")
    return database


def _columns(database: sqlite3.Connection) -> tuple[str, ...] | None:
    """The columns to read, or None when it is no table of chats."""
    if (
        database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'chat'").fetchone()
        is None
    ):
        return None
    there = {row[1] for row in database.execute("PRAGMA table_info(chat)")}
    found = tuple(name for name in _COLUMNS if name in there)
    return found if {"id", "chat"} <= there else None


def _rows(
    database: sqlite3.Connection, columns: tuple[str, ...], cancel: Callable[[], bool], most_bytes: int
) -> Iterator[Entry | Flaw | tuple[int, int]]:
    """Each row is asked for by its number: one that cannot be read does not end the reading."""
    total = database.execute("SELECT count(*) FROM chat").fetchone()[0]
    folders = _folders(database)
    last, done = -(1 << 63), 0
    while (
        not cancel()
        and (found := database.execute("SELECT min(rowid) FROM chat WHERE rowid > ?", (last,)).fetchone()[0])
        is not None
    ):
        last, done = found, done + 1
        place = f"chat {done:,}"
        try:
            row = database.execute(
                f"SELECT {', '.join(columns)} FROM chat WHERE rowid = ?", (last,)
            ).fetchone()
            value = dict(zip(columns, row, strict=True))
            value["chat"] = _object(value["chat"])
            value |= {name: _loaded(value[name]) for name in _JSON if name in value}
            value["folder"] = _path(folders, value.get("folder_id"))
        except (sqlite3.DataError, MemoryError):
            yield Flaw(place, f"it is larger than {most_bytes >> 20} MB", done)
        except (ValueError, RecursionError) as error:
            yield Flaw(place, f"its column “chat” does not hold a chat as JSON ({error})", done)
        except sqlite3.Error as error:
            if cancel():
                return
            yield Flaw(place, f"its row is damaged ({error})", done)
        else:
            yield Entry(place, value, done)
        yield done, total


def _folders(database: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """The folders' names and what they are in, by their ids; none where that cannot be read."""
    try:
        rows = database.execute("SELECT id, name, parent_id FROM folder LIMIT ?", (_MOST_FOLDERS,)).fetchall()
    except (sqlite3.Error, MemoryError):
        return {}
    return {str(number): (str(name or ""), str(above or "")) for number, name, above in rows}


def _path(folders: dict[str, tuple[str, str]], number: Any) -> list[str]:
    """The names from the outermost folder on."""
    names: list[str] = []
    while (found := folders.get(str(number))) is not None and len(names) < _DEEPEST:
        name, number = found
        names.append(name)
    return names[::-1]


def _loaded(text: Any) -> Any:
    """The value in a column of JSON; None where it is none."""
    try:
        return json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return None


def _object(text: Any) -> dict[str, Any]:
    """Raises ValueError when it is no object in JSON."""
    if not isinstance(text, (str, bytes)):
        raise ValueError("it is empty" if text is None else "it is a number")
    value = json.loads(text)
    if isinstance(value, str):  # written as JSON twice by some versions
        value = json.loads(value)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value
