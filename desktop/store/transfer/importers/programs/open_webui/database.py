"""Open WebUI's database, `webui.db`: yields the rows of its table `chat` as the objects that its export has.

The size of a row is bounded; a row that cannot be read is reported and skipped. Columns:
`backend/open_webui/models/chats.py` of open-webui/open-webui; old versions lack some.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from desktop.store.transfer.importers.json_entries import Entry, Flaw
from engine.json_value import json_value
from engine.units import size_text
from engine.words import _

__all__ = ["is_open_webui", "open_webui_chats"]

_COLUMNS = (
    "id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "variables", "folder_id",
    "tasks", "summary", "share_id", "current_message_id",
)  # fmt: skip
_JSON = ("meta", "variables", "tasks")
_MOST_FOLDERS, _DEEPEST = 100_000, 50


def is_open_webui(database: sqlite3.Connection) -> bool:
    """Whether the database has Open WebUI's table of chats."""
    return _columns(database) is not None


def open_webui_chats(
    database: sqlite3.Connection, cancel: Callable[[], bool], most_bytes: int
) -> Iterator[Entry | Flaw | tuple[int, int]]:
    """The chats in the order of their rows, with flaws in between; pairs are (rows done, all rows)."""
    return _rows(database, _columns(database) or (), cancel, most_bytes)


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
    return json_value(text) if isinstance(text, (str, bytes)) else None


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
