"""The SQLite file behind the conversations: where it lies, how it is opened, migrated, checked and closed.

WAL with `synchronous = NORMAL`: a commit survives the death of the process (kill -9), because the write-ahead
log is already with the operating system; only a power cut can take the last commits, never the file's
consistency. FULL would wait for the disk at every commit, and commits happen on the GUI thread five times a
second while a reply runs.
Source: https://www.sqlite.org/pragma.html#pragma_synchronous and https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from desktop.store.database.errors import Damaged, DiskFull, Gone, Rows, StoreError, is_damage, translated
from desktop.store.database.integrity_marker import (
    BESIDE,
    check_done,
    check_requested,
    known_whole,
    note_whole,
    request_check,
)
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.write_lock import is_write, turn_of
from desktop.store.search.folding import index_text
from engine.platform.folders import DATA_VARIABLE, data_dir, private_file, private_folder

__all__ = [
    "DATA_VARIABLE", "FILE_NAME", "MEMORY", "Damaged", "Database", "DiskFull", "Gone", "StoreError",
    "check_file", "connect_existing", "data_folder", "set_aside",
]  # fmt: skip

FILE_NAME = "conversations.sqlite3"
MEMORY = Path(":memory:")
"""A database of this path is never written anywhere."""
BUSY_TIMEOUT_S = 5.0
CHECKED_ON_OPENING = 64 << 20
"""Bytes of a file that is checked, where it is not known to be whole, and before a migration copied while it
is opened: up to 0.3 s. Larger ones are checked later.
"""
CACHE_KIB = 16_384
WAL_BYTES = 64 << 20
BESIDE_WAL_PAGES = 600
"""Pages of the log that another connection than the window's merges into the file: before there are 1000,
at which the window would.
"""

Migration = Callable[[sqlite3.Connection], None]


def data_folder(folder: Path | None = None) -> Path:
    """The folder of all user data, made when missing and closed to other users: the argument, else
    $INGLENOOK_DATA, else the system's place.

    Raises `StoreError` when it cannot be made.
    """
    place = folder or data_dir()
    try:
        private_folder(place)
    except OSError as error:
        raise StoreError(
            f"The data folder {place} cannot be made ({error.strerror}): choose another one with "
            f"{DATA_VARIABLE} or make room there."
        ) from error
    return place


def set_aside(path: Path, why: str = "damaged") -> Path:
    """Rename a damaged file (and SQLite's side files) to a free name beside it, and return that name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.name}.{why}-{stamp}")
    count = 1
    while target.exists():
        count += 1
        target = path.with_name(f"{path.name}.{why}-{stamp}-{count}")
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(target.with_name(target.name + suffix))
    return target


class Database:
    """One open connection, used by the thread that made it.

    `notices` and `set_aside` are filled in by `open.open_conversations`: sentences about a damaged file and
    where it lies now. Connections of one file in one process write by turns (`write_lock.py`). Raises
    `Damaged` for a damaged file, and `StoreError` when the file was written by a newer version or cannot be
    opened at all.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        self.set_aside: Path | None = None
        self.turn = turn_of(path)
        self._identity: tuple[int, int] | None = None
        self._connection, self._whole = _open(path, migrations)
        self._identity = _identity(path)

    @classmethod
    def beside(cls, path: Path) -> Database:
        """Another connection to a file that is open already, for the calling thread: nothing is checked,
        migrated or moved.

        It merges the log into the file often, so that this falls to it and not to the window's thread.
        """
        found = cls.__new__(cls)
        found.path, found.notices, found.set_aside, found.turn, found._whole = (
            path,
            (),
            None,
            turn_of(path),
            False,
        )
        found._identity = _identity(path)
        with translated(path):
            found._connection = connect_existing(path)
            _configure(found._connection)
            found._connection.execute(f"PRAGMA wal_autocheckpoint = {BESIDE_WAL_PAGES}")
        return found

    def reopen(self) -> None:
        """Open the file anew, after `close` and after another one was put in its place; what holds this
        object goes on with it.
        """
        self._connection, self._whole = _open(self.path, MIGRATIONS)
        self._identity = _identity(self.path)
        self.notices, self.set_aside = (), None

    @property
    def in_place(self) -> bool:
        """Whether the open file is the one that lies at `path`; always, for one in memory."""
        return self._identity is None or self._identity == _identity(self.path)

    def move_to(self, path: Path) -> None:
        """Write all that the open file holds to `path`, where none may be, and go on there; the open file
        stays as it is.

        A file that was removed can still be read as long as it is open. Raises `StoreError`, with nothing
        changed.
        """
        if path.exists():
            raise StoreError(f"There are conversations in {path.parent} already: choose an empty folder.")
        part = path.with_name(path.name + ".moved")
        try:
            private_folder(path.parent)
            part.unlink(missing_ok=True)
            with translated(path), contextlib.closing(sqlite3.connect(private_file(part))) as copy:
                self._connection.backup(copy)
            if damage := check_file(part):
                raise Damaged(f"The file with your conversations cannot be read any more ({damage}).")
            os.replace(part, path)
        except OSError as error:
            raise StoreError(
                f"Nothing can be saved in {path.parent} ({error.strerror}): choose another folder."
            ) from error
        finally:
            for suffix in ("", "-wal", "-shm", *BESIDE):
                with contextlib.suppress(OSError):
                    part.with_name(part.name + suffix).unlink()
        self.go_on_at(path)

    def go_on_at(self, path: Path) -> None:
        """Use the file at `path` from now on, in the place of the open one, which is closed.

        Raises `StoreError`.
        """
        connection, whole = _open(path, MIGRATIONS)
        with contextlib.suppress(sqlite3.Error):  # what is gone need not be closed well
            self._connection.close()
        self.path, self.turn, self._identity = path, turn_of(path), _identity(path)
        self._connection, self._whole = connection, whole
        self.notices, self.set_aside = (), None

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run one statement. SQLite's own troubles raise `StoreError`: `DiskFull`, `Damaged`, or for a lock
        or permissions itself; a change where the file is not in its place raises `Gone`.
        """
        rows = self._connection.cursor(Rows)
        rows.path = self.path
        if not is_write(sql):
            with translated(self.path):
                return rows.execute(sql, values)
        if not self.in_place:
            raise Gone(self.path)
        with translated(self.path), self.turn:
            return rows.execute(sql, values)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside are written together or, on any exception, not at all. Does not nest.

        The next one's turn begins before the end is written: SQLite merges the log into the file within that
        statement when its own lock is free again, and nobody need wait for the disk then.
        """
        try:
            with self.turn:
                self.execute("BEGIN IMMEDIATE")
                yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Merge the write-ahead log into the file and close it; calling again does nothing."""
        self._connection.close()
        if self._whole and self.in_place:
            note_whole(self.path)
            self._whole = False


def check_file(path: Path, cancelled: Callable[[], bool] = lambda: False) -> str:
    """What is wrong with the pages of a file that may be in use; empty when nothing is, or when it was
    cancelled.

    Reads all of it, from a connection of its own: for a thread of its own. `cancelled` is asked every few
    milliseconds.
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


def connect_existing(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there; a missing one is not made. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at a path: none where there is none, or no disk."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: Path, migrations: Sequence[Migration]) -> tuple[sqlite3.Connection, bool]:
    """A connection to the file, up to date, and whether it is known to be whole."""
    existed = path.exists() and path.stat().st_size > 0
    whole = not existed or known_whole(path)
    if path != MEMORY:
        with contextlib.suppress(OSError):  # SQLite tells what is wrong; its log gets the rights of the file
            private_file(path)
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        with translated(path):
            _configure(connection)
            whole = whole or _check(connection, path)
            _migrate(connection, path, migrations, existed)
    except BaseException:
        connection.close()
        raise
    return connection, whole


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    connection.create_function("search_tokens", 1, index_text, deterministic=True)


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Raise `Damaged` when the pages contradict each other; returns whether all were read. quick_check reads
    the whole file, so that a large one is not checked here unless something was wrong with it: only that all
    its pages are there.
    """
    size = path.stat().st_size
    if size <= CHECKED_ON_OPENING or check_requested(path):
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
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
        raise Damaged("the end of the file is missing")
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
            f"The conversations in {path} were written by a newer version of Inglenook (step "
            f"{applied[-1]!r} is unknown here): update Inglenook, or choose another data folder with "
            f"{DATA_VARIABLE}."
        )
    pending = list(migrations[len(applied) :])
    if not pending:
        return
    if existed and applied and path.stat().st_size <= CHECKED_ON_OPENING:  # a larger file has the backups
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
    """Copy the open database to `target`; a copy left there by an interrupted migration is replaced."""
    target.unlink(missing_ok=True)
    private_file(target)
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
