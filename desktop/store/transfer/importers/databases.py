"""SQLite databases of programs, opened read-only in a way that creates no file beside them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from desktop.store.transfer.importers.json_entries import Entry, Flaw
from desktop.store.transfer.importers.programs.ollama import is_ollama, ollama_chats
from desktop.store.transfer.importers.programs.open_webui.database import is_open_webui, open_webui_chats
from engine.words import _

__all__ = ["DATABASES", "MAGIC", "chat_rows", "has_chats"]

MAGIC = b"SQLite format 3\x00"
DATABASES = (("Open WebUI", is_open_webui, open_webui_chats), ("Ollama", is_ollama, ollama_chats))
_STEPS = 10_000
"""SQLite instructions between two checks whether to stop."""


def has_chats(path: Path) -> bool:
    """Whether it is a database with the chats of a known program; False if it cannot be read."""
    try:
        with contextlib.closing(_opened(path)) as database:
            return any(holds(database) for _label, holds, _chats in DATABASES)
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
            chats = next((chats for _label, holds, chats in DATABASES if holds(database)), None)
            if chats is None:
                programs = ", ".join(label for label, _holds, _chats in DATABASES)
                yield Flaw(
                    "",
                    _(
                        "it is a SQLite database, but without the tables of a known program ({programs})",
                        programs=programs,
                    ),
                    0,
                )
                return
            yield from chats(database, cancel, most_bytes)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: SQLite's words quote the file
        if not cancel():
            yield Flaw("", _("the database cannot be read ({error})", error=error), 0)


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file read-only. With a journal beside it the program may be running, and SQLite reads both."""
    journal = path.with_name(f"{path.name}-wal")
    alone = not journal.exists() or not journal.stat().st_size
    database = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if alone else ''}", uri=True, timeout=2
    )
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")  # the schema in the file must not run anything
    database.execute("PRAGMA query_only = ON")
    return database
