"""The SQLite file with the conversations: reading, writing, moving and closing it.

WAL with `synchronous = NORMAL`: a commit survives the death of the process (kill -9), because the operating
system already has the write-ahead log. Only a power cut can lose the last commits, and never the consistency
of the file. FULL would make the GUI thread wait for the disk five times a second during a reply.
Source: https://www.sqlite.org/pragma.html#pragma_synchronous and https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from desktop.store.database.connecting import Migration, check_file, configure, connect_existing, open_file
from desktop.store.database.errors import Damaged, DiskFull, Gone, Rows, StoreError, translated
from desktop.store.database.integrity_marker import note_intact, remove_copy
from desktop.store.database.lock_wait import LockWait
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.row_changes import RowChanges
from desktop.store.database.write_lock import is_write, write_lock_of
from engine.platform.folders import private_file, private_folder
from engine.words import _

__all__ = ["FILE_NAME", "Damaged", "Database", "DiskFull", "Gone", "StoreError"]

FILE_NAME = "conversations.sqlite3"
SECOND_WAL_PAGES = 600
"""Pages of the log at which a second connection checkpoints; the window's connection does at 1000."""


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
        self._connection, self._intact = open_file(path, migrations)
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
            configure(found._connection)
            found._connection.execute(f"PRAGMA wal_autocheckpoint = {SECOND_WAL_PAGES}")
        return found

    def reopen(self) -> None:
        """Open the file again, after `close` and its replacement; references to this object stay valid."""
        self._connection, self._intact = open_file(self.path, MIGRATIONS)
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
        connection, intact = open_file(path, MIGRATIONS)
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


def _identity(path: Path) -> tuple[int, int] | None:
    """Identifies the file at a path; None if there is none, or for a database in memory."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
