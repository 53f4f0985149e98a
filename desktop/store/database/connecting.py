"""How the SQLite file with the conversations is opened: configured, checked and migrated."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from desktop.store.attachments.picture_marks import keys_json
from desktop.store.database.errors import Damaged, StoreError, is_damage, translated
from desktop.store.database.integrity_marker import check_done, check_requested, known_intact, request_check
from desktop.store.search.folding import index_text
from engine.platform.folders import DATA_VARIABLE, private_file
from engine.words import _

MEMORY = Path(":memory:")
"""A database with this path is never written anywhere."""
BUSY_TIMEOUT_S = 5.0
CHECKED_ON_OPENING = 64 << 20
"""Bytes of a file up to which it is checked on opening, unless it is known to be intact: this takes up to
0.3 s. Larger files are checked later.
"""
CACHE_KIB = 16_384
WAL_BYTES = 64 << 20

Migration = Callable[[sqlite3.Connection], None]


def open_file(path: Path, migrations: Sequence[Migration]) -> tuple[sqlite3.Connection, bool]:
    """A migrated connection to the file, and whether the file is known to be intact."""
    existed = path.exists() and path.stat().st_size > 0
    intact = not existed or known_intact(path)
    if path != MEMORY:
        with contextlib.suppress(OSError):  # SQLite will report it; its log inherits the permissions
            private_file(path)
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        with translated(path):
            configure(connection)
            intact = intact or _check(connection, path)
            _migrate(connection, path, migrations, existed)
    except BaseException:
        connection.close()
        raise
    return connection, intact


def configure(connection: sqlite3.Connection) -> None:
    """The settings and functions that every connection has."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a bad byte hides no text
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    connection.create_function("search_tokens", 1, index_text, deterministic=True)
    connection.create_function("picture_keys", 1, keys_json, deterministic=True)


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Raise `Damaged` if the pages are inconsistent; returns whether all were read: of a large file only the
    length is checked, unless damage was met and a check requested, which compares the indexes, too.
    """
    size, requested = path.stat().st_size, check_requested(path)
    if size <= CHECKED_ON_OPENING or requested:
        found = connection.execute(f"PRAGMA {'integrity' if requested else 'quick'}_check(1)").fetchone()[0]
        if found != "ok":
            raise Damaged(str(found))
        check_done(path)
        return True
    connection.execute("SELECT name FROM sqlite_master").fetchall()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    wal = path.with_name(path.name + "-wal")
    if (
        not (wal.exists() and wal.stat().st_size)
        and connection.execute("PRAGMA page_count").fetchone()[0] * page > size
    ):
        raise Damaged(_("the end of the file is missing"))
    return False


def _migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration], existed: bool
) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at "
        "REAL NOT NULL)"
    )
    applied = [str(row[0]) for row in connection.execute("SELECT name FROM migrations ORDER BY number")]
    names = [step.__name__ for step in migrations]
    if applied != names[: len(applied)]:
        raise StoreError(
            _(
                "The chats in {path} were saved by a newer version of Inglenook (step {applied!r} "
                "is unknown to this one). Update Inglenook, or choose another data folder with "
                "{data_variable}.",
                path=path,
                applied=applied[-1],
                data_variable=DATA_VARIABLE,
            )
        )
    pending = list(migrations[len(applied) :])
    if not pending:
        return
    if existed and applied:
        _back_up(connection, path.with_name(f"{path.stem}.before-{pending[0].__name__}{path.suffix}"))
    for number, step in enumerate(pending, start=len(applied) + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            step(connection)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?)", (number, step.__name__, time.time())
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the open database to `target`, replacing a copy left by an interrupted migration."""
    target.unlink(missing_ok=True)
    private_file(target)
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()


def connect_existing(path: Path) -> sqlite3.Connection:
    """A connection to an existing file; a missing one is not created. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)


def check_file(path: Path, cancelled: Callable[[], bool] = lambda: False) -> str:
    """What is wrong with the pages of a file, which may be in use; empty if nothing is, or if cancelled.

    Reads the whole file on a connection of its own, so it belongs on another thread. `cancelled` is called
    every few milliseconds.
    """
    with translated(path), contextlib.closing(connect_existing(path)) as connection:
        connection.set_progress_handler(lambda: int(cancelled()), 20_000)
        try:
            found = "ok" if cancelled() else str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.OperationalError:
            if cancelled():
                return ""
            raise
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            found = str(error)
    if found == "ok":
        return ""
    request_check(path)
    return found
