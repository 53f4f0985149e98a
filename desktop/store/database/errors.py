"""What can go wrong with the file of conversations: SQLite's errors as sentences for the user."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from desktop.store.database.integrity_marker import request_check
from engine.platform.folders import DATA_VARIABLE
from engine.printable import one_line
from engine.words import _, translate

__all__ = [
    "Damaged",
    "DiskFull",
    "Gone",
    "Rows",
    "StoreError",
    "is_damage",
    "is_locked",
    "missing",
    "not_created",
    "translated",
]

FAILURES = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors of SQLite; the second stands for one whose words quote a damaged file, and are no UTF-8."""
ROOM = 1 << 20
"""With fewer free bytes than this, a failed write is attributed to a full disk."""
_BAD_HEADER = "unsupported file format"
"""What SQLite says of a number in the header that no version writes; it has no code of its own."""


class StoreError(Exception):
    """The conversations or preferences cannot be read or written; `str(error)` is a sentence for the user."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class DiskFull(StoreError):
    """There is no room for a change: nothing was written, and the same call works once there is room."""


class Gone(StoreError):
    """The file is no longer where it was opened: nothing is written, because it would be lost at exit."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            _(
                "The file with your chats is no longer in {parent}: the folder was removed, moved, "
                "replaced or unmounted. Nothing can be saved until it is back or you choose "
                "another folder.",
                parent=path.parent,
            )
        )


class Damaged(StoreError):
    """The file is inconsistent. What can be read is recovered when it is next opened."""


def not_created(place: Path, error: OSError) -> StoreError:
    """The error for a data folder that cannot be created."""
    facts = {"place": place, "strerror": error.strerror, "data_variable": DATA_VARIABLE}
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            _(
                "The data folder {place} cannot be created ({strerror}). Choose another one with "
                "{data_variable}, or free some disk space.",
                **facts,
            )
        )
    return StoreError(
        _(
            "The data folder {place} cannot be created ({strerror}). Choose another one with "
            "{data_variable}.",
            **facts,
        )
    )


def missing(what: str, number: int) -> StoreError:
    """The error for an id that is not in the database; `what` is marked by `N_`."""
    return StoreError(
        _(
            "There is no {what} number {number}. It may have been deleted in another window.",
            what=translate(what),
            number=number,
        )
    )


class Rows(sqlite3.Cursor):
    """A cursor that also raises `StoreError` when rows are fetched later. `path` is the database file.

    In texts, half a surrogate pair, which no file can hold, becomes U+FFFD: servers and tools send such.
    """

    path = Path()

    def execute(self, sql: str, values: Any = (), /) -> Self:
        try:
            return super().execute(sql, values)
        except UnicodeEncodeError:
            return super().execute(sql, [_whole(each) if isinstance(each, str) else each for each in values])

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except FAILURES as error:
            raise _translation(error, self.path) from error

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        try:
            return super().fetchmany(size)
        except FAILURES as error:
            raise _translation(error, self.path) from error

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except FAILURES as error:
            raise _translation(error, self.path) from error

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except FAILURES as error:
            raise _translation(error, self.path) from error


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `StoreError`."""
    try:
        yield
    except FAILURES as error:
        raise _translation(error, path) from error


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite reports that the file itself is bad, rather than the disk, a lock or permissions."""
    if isinstance(error, UnicodeDecodeError) or str(error) == _BAD_HEADER:
        return True
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_locked(error: BaseException | None) -> bool:
    """Whether another connection holds the file; of a `StoreError`, whether that is its cause."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return _code(cause) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _translation(error: sqlite3.DatabaseError | UnicodeDecodeError, path: Path) -> StoreError:
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(
            _("This change conflicts with the saved chats ({error}). Nothing was saved.", error=error)
        )
    if is_damage(error):
        request_check(path)
        return Damaged(
            _(
                "The file {path} with your chats is damaged ({error}). Restart Inglenook to "
                "recover everything that can be read.",
                path=path,
                error=error,
            )
        )
    if _is_full(error, path):
        return DiskFull(
            _(
                "There is not enough disk space to save your chats in {path}. Free some space, and "
                "they will be saved.",
                path=path,
            )
        )
    if _code(error) == sqlite3.SQLITE_READONLY:
        return StoreError(
            _(
                "The chats in {path} can be read but not saved, because the disk or the file is "
                "read-only. Make it writable, and everything will be saved.",
                path=path,
            )
        )
    if is_locked(error):
        return StoreError(
            _(
                "Another program has locked the chats in {path}, so they cannot be read or saved. Close that "
                "program, then try again.",
                path=path,
            )
        )
    return StoreError(
        _(
            "The chats in {path} cannot be read or saved ({error}). Check free space and permissions.",
            path=path,
            error=error,
        )
    )


def _is_full(error: BaseException, path: Path) -> bool:
    if _code(error) != sqlite3.SQLITE_IOERR:
        return _code(error) == sqlite3.SQLITE_FULL
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free < ROOM
    return False


def _code(error: BaseException | None) -> int:
    """SQLite's primary result code, without the extended bits."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
