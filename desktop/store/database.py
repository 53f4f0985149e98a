"""The SQLite file behind the conversations: where it lies, how it is opened, migrated, checked and closed.

WAL with `synchronous = NORMAL`: a commit survives the death of the process (kill -9), because the write-ahead log is
already with the operating system; only a power cut can take the last commits, never the file's consistency. FULL would
wait for the disk at every commit, and commits happen on the GUI thread twice a second while a reply runs.
Source: https://www.sqlite.org/pragma.html#pragma_synchronous and https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from desktop.store.migrations import MIGRATIONS
from engine.folders import DATA_VARIABLE, data_dir

__all__ = ["DATA_VARIABLE", "FILE_NAME", "Database", "StoreError", "data_folder", "set_aside"]

log = logging.getLogger(__name__)

"""Environment variable that moves the data folder."""
FILE_NAME = "conversations.sqlite3"
BUSY_TIMEOUT_S = 5.0

Migration = Callable[[sqlite3.Connection], None]


class StoreError(Exception):
    """The conversations or preferences cannot be read or written; `str(error)` is one sentence for the user's eyes."""


def data_folder(folder: Path | None = None) -> Path:
    """The folder of all user data, made when missing: the argument, else $INGLENOOK_DATA, else the system's place.

    Raises `StoreError` when it cannot be made.
    """
    place = folder or data_dir()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The data folder {place} cannot be made ({error.strerror}): choose another one with {DATA_VARIABLE} or make room there."
        ) from error
    return place


def set_aside(path: Path) -> Path:
    """Rename a damaged file (and SQLite's side files) to a free name beside it, and return that name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    count = 1
    while target.exists():
        count += 1
        target = path.with_name(f"{path.name}.damaged-{stamp}-{count}")
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(target.with_name(target.name + suffix))
    return target


class Database:
    """One open connection, used by the thread that made it.

    `notices` holds sentences about what opening had to do (a damaged file set aside); usually empty.
    Raises `StoreError` when the file was written by a newer version, or cannot be opened at all.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        try:
            self._connection = _open(path, migrations)
        except _Damaged as damage:
            target = set_aside(path)
            log.error("damaged database %s set aside as %s: %s", path, target, damage)
            self.notices = (
                f"The file with your conversations was damaged; it is kept as {target.name} in {target.parent}, and a new one was begun.",
            )
            self._connection = _open(path, migrations)

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run one statement. SQLite's own troubles (disk full, read-only, locked) raise `StoreError`."""
        with translated(self.path):
            return self._connection.execute(sql, values)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside are written together or, on any exception, not at all. Does not nest."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Merge the write-ahead log into the file and close it; calling again does nothing."""
        self._connection.close()


class _Damaged(Exception):
    """The file is no database, or its pages contradict each other."""


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one sentence."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"This change does not fit the saved conversations ({error}); nothing was written.") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"The conversations in {path} cannot be read or written ({error}); check free space and permissions.") from error


def _open(path: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    existed = path.exists() and path.stat().st_size > 0
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        with translated(path):
            _configure(connection)
            if existed:
                _check(connection)
            _migrate(connection, path, migrations, existed)
    except BaseException as error:
        connection.close()
        if isinstance(error, StoreError) and _is_damage(error.__cause__):
            raise _Damaged(str(error.__cause__)) from error
        raise
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")


def _check(connection: sqlite3.Connection) -> None:
    """Raise `_Damaged` when the pages contradict each other. quick_check reads the whole file: 0.1 s for 100 MB."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _Damaged(str(found))


def _is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file itself is bad, and not the disk, a lock or the permissions."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration], existed: bool) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at REAL NOT NULL)")
    applied = [str(row[0]) for row in connection.execute("SELECT name FROM migrations ORDER BY number")]
    names = [step.__name__ for step in migrations]
    if applied != names[: len(applied)]:
        raise StoreError(
            f"The conversations in {path} were written by a newer version of Inglenook (step {applied[-1]!r} is unknown here): "
            f"update Inglenook, or choose another data folder with {DATA_VARIABLE}."
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
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, step.__name__, time.time()))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the open database to `target`; a copy left there by an interrupted migration is replaced."""
    target.unlink(missing_ok=True)
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
