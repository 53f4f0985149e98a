"""The SQLite file with the conversations: how it is opened, migrated, checked, moved and closed.

WAL with `synchronous = NORMAL`: a commit survives the death of the process (kill -9), because the operating
system already has the write-ahead log. Only a power cut can lose the last commits, and never the consistency
of the file. FULL would make the GUI thread wait for the disk five times a second during a reply.
Source: https://www.sqlite.org/pragma.html#pragma_synchronous and https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from desktop.store.attachments.picture_marks import keys_json
from desktop.store.database.errors import (
    Damaged,
    DiskFull,
    Gone,
    Rows,
    StoreError,
    is_damage,
    not_created,
    translated,
)
from desktop.store.database.integrity_marker import (
    check_done,
    check_requested,
    known_intact,
    note_intact,
    remove_copy,
    request_check,
)
from desktop.store.database.lock_wait import LockWait
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.row_changes import RowChanges
from desktop.store.database.write_lock import is_write, write_lock_of
from desktop.store.search.folding import index_text
from engine.platform.folders import DATA_VARIABLE, data_dir, private_file, private_folder, usual_data_dir
from engine.platform.moved_data import NOTE_NAME, read_moved
from engine.words import _

__all__ = [
    "DATA_VARIABLE", "FILE_NAME", "MEMORY", "Damaged", "Database", "DiskFull", "Gone", "StoreError",
    "check_file", "connect_existing", "data_folder", "set_aside",
]  # fmt: skip

FILE_NAME = "conversations.sqlite3"
MEMORY = Path(":memory:")
"""A database with this path is never written anywhere."""
BUSY_TIMEOUT_S = 5.0
CHECKED_ON_OPENING = 64 << 20
"""Bytes of a file up to which it is checked on opening, unless it is known to be intact: this takes up to
0.3 s. Larger files are checked later.
"""
CACHE_KIB = 16_384
WAL_BYTES = 64 << 20
SECOND_WAL_PAGES = 600
"""Pages of the log at which a second connection checkpoints; the window's connection does at 1000."""

Migration = Callable[[sqlite3.Connection], None]


def data_folder(folder: Path | None = None) -> Path:
    """The folder of all user data, created if missing and closed to other users: the argument, else
    $INGLENOOK_DATA, else the system's default, or where the data was moved to from there.

    Raises `StoreError` if it cannot be created; one that the data was moved to is never created again.
    """
    try:
        place = folder or data_dir()
    except OSError as error:
        raise StoreError(
            _("{filename} cannot be used: {strerror}.", filename=error.filename, strerror=error.strerror)
        ) from error
    usual = usual_data_dir()
    if folder is None and not place.is_dir() and (moved := read_moved(usual)) and moved.folder == place:
        raise StoreError(
            _(
                "The folder {place}, which your data was moved to, is not there. Connect its disk "
                "and start again, or delete {usual} to use {usual_2}.",
                place=place,
                usual=usual / NOTE_NAME,
                usual_2=usual,
            )
        )
    try:
        private_folder(place)
    except OSError as error:
        raise not_created(place, error) from error
    return place


def set_aside(path: Path, why: str = "damaged") -> Path:
    """Rename a file (and SQLite's side files) to an unused name beside it, and return that name."""
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
    """One open connection, used by the thread that created it.

    `open.open_conversations` fills in `notices`, sentences about a damaged file, and `set_aside`, its path.
    Connections of one process to the same file share a write lock (`write_lock.py`). Raises `Damaged` for a
    damaged file, and `StoreError` if the file was written by a newer version or cannot be opened at all.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        self.set_aside: Path | None = None
        self.write_lock = write_lock_of(path)
        self._watched, self._lock_wait = list[RowChanges](), LockWait()
        self._identity: tuple[int, int] | None = None
        self._connection, self._intact = _open(path, migrations)
        self._lock_wait.begin(self._connection, self.write_lock)
        self._identity = _identity(path)

    @classmethod
    def second(cls, path: Path) -> Database:
        """Another connection to an open file, for the calling thread; nothing is checked, migrated or moved.

        It checkpoints the log often, so that the window's connection does not have to.
        """
        found = cls.__new__(cls)
        found.path, found.write_lock = path, write_lock_of(path)
        found.notices, found.set_aside, found._intact = (), None, False
        found._watched, found._lock_wait = [], LockWait()  # which leaves the timeout as it is
        found._identity = _identity(path)
        with translated(path):
            found._connection = connect_existing(path)
            _configure(found._connection)
            found._connection.execute(f"PRAGMA wal_autocheckpoint = {SECOND_WAL_PAGES}")
        return found

    def reopen(self) -> None:
        """Open the file again, after `close` and its replacement; references to this object stay valid."""
        self._connection, self._intact = _open(self.path, MIGRATIONS)
        self._begin_again()
        self._identity = _identity(self.path)
        self.notices, self.set_aside = (), None

    @property
    def in_place(self) -> bool:
        """Whether the open file is still the one at `path`; always true for a database in memory."""
        return self._identity is None or self._identity == _identity(self.path)

    def move_to(self, path: Path) -> None:
        """Write everything to a new file at `path` and continue there; the old file stays as it is.

        A file that was deleted can still be read while it is open. Raises `StoreError`, with nothing changed,
        for example if `path` exists.
        """
        if path.exists():
            raise StoreError(
                _("{parent} already contains chats. Choose an empty folder.", parent=path.parent)
            )
        part = path.with_name(path.name + ".moved")
        try:
            private_folder(path.parent)
            part.unlink(missing_ok=True)
            with translated(path), contextlib.closing(sqlite3.connect(private_file(part))) as copy:
                self._connection.backup(copy)
            if damage := check_file(part):
                raise Damaged(_("The file with your chats can no longer be read ({damage}).", damage=damage))
            os.replace(part, path)
        except OSError as error:
            raise StoreError(
                _(
                    "Nothing can be saved in {parent} ({strerror}). Choose another folder.",
                    parent=path.parent,
                    strerror=error.strerror,
                )
            ) from error
        finally:
            remove_copy(part)
        self.switch_to(path)

    def switch_to(self, path: Path) -> None:
        """Use the file at `path` from now on and close the present one. Raises `StoreError`."""
        connection, intact = _open(path, MIGRATIONS)
        with contextlib.suppress(sqlite3.Error):  # the file may be gone
            self._connection.close()
        self.path, self.write_lock, self._identity = path, write_lock_of(path), _identity(path)
        self._connection, self._intact = connection, intact
        self._begin_again()
        self.notices, self.set_aside = (), None

    def watch(self, changes: RowChanges) -> None:
        """Let `changes` look at this database from now on, whichever file it is. Raises `StoreError`."""
        with translated(self.path):
            changes.watch(self._connection)
        self._watched.append(changes)

    def _begin_again(self) -> None:
        self._lock_wait.begin(self._connection, self.write_lock)
        for changes in self._watched:
            with translated(self.path):
                changes.watch(self._connection)

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run one statement.

        SQLite's errors raise `StoreError` (`DiskFull`, `Damaged`, or the base class for locks and
        permissions). A change raises `Gone` if the file is no longer in its place.
        """
        rows = self._connection.cursor(Rows)
        rows.path = self.path
        if not is_write(sql):
            with translated(self.path):
                return rows.execute(sql, values)
        if not self.in_place:
            raise Gone(self.path)
        with translated(self.path), self.write_lock, self._lock_wait:
            return rows.execute(sql, values)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all statements inside together or, after any exception, not at all. Does not nest.

        The lock is released before COMMIT, which may checkpoint after releasing SQLite's own: nobody waits.
        """
        try:
            with contextlib.ExitStack() as end:
                with self.write_lock:
                    with self._lock_wait:
                        self.execute("BEGIN IMMEDIATE")
                    yield
                    end.enter_context(self.write_lock.commit())
                self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            for changes in self._watched:
                changes.undone()
            raise

    def close(self) -> None:
        """Checkpoint the write-ahead log and close the file. Can be called again."""
        self._connection.close()
        if self._intact and self.in_place:
            note_intact(self.path)
            self._intact = False


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


def connect_existing(path: Path) -> sqlite3.Connection:
    """A connection to an existing file; a missing one is not created. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)


def _identity(path: Path) -> tuple[int, int] | None:
    """Identifies the file at a path; None if there is none, or for a database in memory."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: Path, migrations: Sequence[Migration]) -> tuple[sqlite3.Connection, bool]:
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
            _configure(connection)
            intact = intact or _check(connection, path)
            _migrate(connection, path, migrations, existed)
    except BaseException:
        connection.close()
        raise
    return connection, intact


def _configure(connection: sqlite3.Connection) -> None:
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
