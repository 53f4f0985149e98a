"""Open WebUI's database, `webui.db`: yields the rows of its table `chat` as the objects that its export has.

The file is opened read-only, in a way that creates no file beside it. The size of a row is bounded; a row
that cannot be read is reported and skipped. Columns: `backend/open_webui/models/chats.py` of
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
from engine.units import size_text
from engine.words import _

__all__ = ["MAGIC", "chat_rows", "has_chats"]

MAGIC = b"SQLite format 3\x00"
_COLUMNS = (
    "id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "variables", "folder_id",
    "tasks", "summary", "share_id", "current_message_id",
)  # fmt: skip
_JSON = ("meta", "variables", "tasks")
_MOST_FOLDERS, _DEEPEST = 100_000, 50
_STEPS = 10_000
"""SQLite instructions between two checks whether to stop."""


def has_chats(path: Path) -> bool:
    """Whether it is a database with Open WebUI's chats; False if it cannot be read."""
    try:
        with contextlib.closing(_opened(path)) as database:
            return _columns(database) is not None
    except (sqlite3.Error, OSError):
        return False


def chat_rows(
    path: Path, cancel: Callable[[], bool], most_bytes: int
) -> Iterator[Entry | Flaw | tuple[int, int]]:
    """The chats of a database in the order of their rows, with flaws in between; pairs are (rows done, all
    rows).

    Ends early when `cancel()` returns true. A database of something else yields one flaw without a place.
    """
    try:
        with contextlib.closing(_opened(path)) as database:
            database.set_progress_handler(cancel, _STEPS)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most_bytes)
            columns = _columns(database)
            if columns is None:
                yield Flaw(
                    "",
                    _(
                        "it is a SQLite database but not from Open WebUI: it has no table “chat” with "
                        "the columns “id” and “chat”"
                    ),
                    0,
                )
                return
            yield from _rows(database, columns, cancel, most_bytes)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: SQLite's words quote the file
        if not cancel():
            yield Flaw("", _("the database cannot be read ({error})", error=error), 0)


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file read-only. With a journal beside it Open WebUI may be running, and SQLite reads both."""
    journal = path.with_name(f"{path.name}-wal")
    alone = not journal.exists() or not journal.stat().st_size
    database = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if alone else ''}", uri=True, timeout=2
    )
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")  # the schema in the file must not run anything
    database.execute("PRAGMA query_only = ON")
    return database


def _columns(database: sqlite3.Connection) -> tuple[str, ...] | None:
    """The columns to read; None if there is no table of chats."""
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
    """Read each row by its number, so that an unreadable one does not end the import."""
    total = database.execute("SELECT count(*) FROM chat").fetchone()[0]
    folders = _folders(database)
    last, done = -(1 << 63), 0
    while (
        not cancel()
        and (found := database.execute("SELECT min(rowid) FROM chat WHERE rowid > ?", (last,)).fetchone()[0])
        is not None
    ):
        last, done = found, done + 1
        place = _("chat {done:,}", done=done)
        try:
            row = database.execute(
                f"SELECT {', '.join(columns)} FROM chat WHERE rowid = ?", (last,)
            ).fetchone()
            if row is None:  # listed, but not found by its number
                raise sqlite3.DatabaseError("database disk image is malformed")
            value = dict(zip(columns, row, strict=True))
            value["chat"] = _object(value["chat"])
            value |= {name: _loaded(value[name]) for name in _JSON if name in value}
            value["folder"] = _path(folders, value.get("folder_id"))
        except (sqlite3.DataError, MemoryError):
            yield Flaw(place, _("it is larger than {size}", size=size_text(most_bytes)), done)
        except (ValueError, RecursionError) as error:
            yield Flaw(
                place, _("its column “chat” does not hold a chat as JSON ({error})", error=error), done
            )
        except sqlite3.Error as error:
            if cancel():
                return
            yield Flaw(place, _("its row is damaged ({error})", error=error), done)
        else:
            yield Entry(place, value, done)
        yield done, total


def _folders(database: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Name and parent of the folders by id; empty if they cannot be read."""
    try:
        rows = database.execute("SELECT id, name, parent_id FROM folder LIMIT ?", (_MOST_FOLDERS,)).fetchall()
    except (sqlite3.Error, MemoryError):
        return {}
    return {str(number): (str(name or ""), str(above or "")) for number, name, above in rows}


def _path(folders: dict[str, tuple[str, str]], number: Any) -> list[str]:
    """The names from the outermost folder inwards."""
    names: list[str] = []
    while (found := folders.get(str(number))) is not None and len(names) < _DEEPEST:
        name, number = found
        names.append(name)
    return names[::-1]


def _loaded(text: Any) -> Any:
    """The value in a JSON column; None if it is not JSON."""
    try:
        return json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return None


def _object(text: Any) -> dict[str, Any]:
    """The object in a JSON column. Raises ValueError if it is not one."""
    if not isinstance(text, (str, bytes)):
        raise ValueError("it is empty" if text is None else "it is a number")
    value = json.loads(text)
    if isinstance(value, str):  # some versions encode it twice
        value = json.loads(value)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value
