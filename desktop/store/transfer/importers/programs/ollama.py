"""The database of Ollama's app, `db.sqlite`: tables of chats, messages, tool calls and attachments.

Columns: app/store/schema.sql and database.go of ollama/ollama; old versions lack some.
"""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from desktop.store.transfer.importers.json_entries import Entry, Flaw
from desktop.store.transfer.importers.programs.message_lists.chat import Chat
from desktop.store.transfer.importers.programs.message_lists.message import first_time
from engine.units import size_text
from engine.words import _

__all__ = ["is_ollama", "ollama_chats"]

_CHAT = ("id", "title", "created_at")
_MESSAGE = ("id", "role", "content", "thinking", "model_name", "created_at")
_CALL = ("function_name", "function_arguments", "function_result")
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp", b"GIF8": "gif"}


def _columns(database: sqlite3.Connection, table: str, names: tuple[str, ...]) -> list[str]:
    there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    return [name for name in names if name in there]


def is_ollama(database: sqlite3.Connection) -> bool:
    """Whether the database has the tables of Ollama's app."""
    has = {"chat_id", "role", "content"} <= {
        row[1] for row in database.execute("PRAGMA table_info(messages)")
    }
    return has and "id" in _columns(database, "chats", _CHAT)


def ollama_chats(
    database: sqlite3.Connection, cancel: Callable[[], bool], most_bytes: int
) -> Iterator[Entry | Flaw | tuple[int, int]]:
    """The chats in the order of their rows, with flaws in between; pairs are (chats done, all chats)."""
    columns = _columns(database, "chats", _CHAT)
    total = database.execute("SELECT count(*) FROM chats").fetchone()[0]
    numbers = [row[0] for row in database.execute("SELECT rowid FROM chats ORDER BY rowid")]
    for done, number in enumerate(numbers, start=1):
        if cancel():
            return
        place = _("chat {done:,}", done=done)
        try:
            row = database.execute(
                f"SELECT {', '.join(columns)} FROM chats WHERE rowid = ?", (number,)
            ).fetchone()
            yield Entry(place, _chat(database, dict(zip(columns, row, strict=True)), most_bytes), done)
        except (sqlite3.DataError, MemoryError):
            yield Flaw(place, _("it is larger than {size}", size=size_text(most_bytes)), done)
        except (sqlite3.Error, TypeError) as error:
            if cancel():
                return
            yield Flaw(place, _("its row is damaged ({error})", error=error), done)
        yield done, total


def _chat(database: sqlite3.Connection, about: dict[str, Any], most_bytes: int) -> Chat:
    columns = _columns(database, "messages", _MESSAGE)
    rows = database.execute(
        f"SELECT {', '.join(columns)} FROM messages WHERE chat_id = ? ORDER BY id", (about["id"],)
    )
    messages, size = [], 0
    for row in rows:
        message = dict(zip(columns, row, strict=True))
        message |= {"tool_calls": _calls(database, message["id"]), "files": _files(database, message["id"])}
        size += len(str(message["content"])) + sum(len(file["url"]) for file in message["files"])
        if size > most_bytes:
            raise MemoryError
        messages.append(message)
    return Chat(
        "ollama", messages, str(about["id"]), str(about.get("title") or ""), first_time(about, "created_at"),
    )  # fmt: skip


def _calls(database: sqlite3.Connection, message: int) -> list[dict[str, Any]]:
    columns = _columns(database, "tool_calls", _CALL)
    if len(columns) < len(_CALL):
        return []
    found = database.execute(
        f"SELECT {', '.join(_CALL)} FROM tool_calls WHERE message_id = ? ORDER BY id", (message,)
    )
    return [{"name": name, "arguments": given, "result": came} for name, given, came in found]


def _files(database: sqlite3.Connection, message: int) -> list[dict[str, str]]:
    """Attached pictures, as addresses that hold them, and the texts of other files."""
    if len(_columns(database, "attachments", ("message_id", "filename", "data"))) < 3:
        return []
    found = database.execute(
        "SELECT filename, data FROM attachments WHERE message_id = ? ORDER BY id", (message,)
    )
    return [
        _file(str(name or ""), data if isinstance(data, bytes) else str(data or "").encode())
        for name, data in found
    ]


def _file(name: str, data: bytes) -> dict[str, str]:
    kind = next((kind for magic, kind in _PICTURES.items() if data.startswith(magic)), "")
    if kind:
        return {"name": name, "url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}
    try:
        return {"name": name, "url": "", "content": data.decode()}
    except UnicodeDecodeError:
        return {"name": name, "url": ""}
