"""Automatic copies of the conversations: some of the last hours, days and weeks, in a folder of bounded size.

A copy is made with SQLite's backup API on a connection of its own, a few pages at a time, while the program
continues to write. An open read transaction holds the state that is copied, so that the copy never has to
restart. Source: https://www.sqlite.org/backup.html
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from desktop.store.database.connecting import check_file, connect_existing
from desktop.store.database.data_folder import set_aside
from desktop.store.database.database import Damaged, Database, DiskFull, StoreError
from desktop.store.database.errors import translated
from desktop.store.database.integrity_marker import remove_copy, request_check
from engine.platform.folders import private_file, private_folder
from engine.units import size_text
from engine.words import _

__all__ = [
    "TIERS", "Backup", "Backups", "Tier", "count_conversations", "prepare_restore",
    "put_in_place",
]  # fmt: skip

FOLDER = "backups"
STEP_PAGES = 256
PAUSE_S = 0.002
"""Pause after each megabyte, so that a copy does not slow down a running reply."""
MOST_TIMES, MOST_BYTES = 4, 256 << 20
"""All copies together take at most four times the size of the file, or 256 MiB if that is more. The latest is
always kept.
"""
SPARE = 32 << 20
_STAMP = "%Y%m%d-%H%M%S"


class Tier(NamedTuple):
    """Keep the latest copy of each of the last `most` periods of `seconds` that have one."""

    name: str
    seconds: int
    most: int


TIERS = (Tier("hourly", 3_600, 6), Tier("daily", 86_400, 7), Tier("weekly", 7 * 86_400, 4))


class Backup(NamedTuple):
    """One copy: the time it was made (seconds since 1970) and its size in bytes."""

    path: Path
    made_at: float
    size: int


class Backups:
    """The copies of the file at `path`, in the folder "backups" beside it.

    Methods may be called on any thread, one at a time.
    """

    def __init__(self, path: Path, folder: Path | None = None) -> None:
        self.path = path
        self.folder = folder or path.parent / FOLDER

    def list(self) -> tuple[Backup, ...]:
        """All copies, latest first. Files with other names are ignored."""
        found: list[Backup] = []
        with contextlib.suppress(OSError):
            for file in self.folder.glob(f"{self.path.stem}-*{self.path.suffix}"):
                with contextlib.suppress(ValueError, OSError):
                    made = datetime.strptime(file.stem.removeprefix(f"{self.path.stem}-"), _STAMP).replace(
                        tzinfo=UTC
                    )
                    found.append(Backup(file, made.timestamp(), file.stat().st_size))
        return tuple(sorted(found, key=lambda backup: backup.made_at, reverse=True))

    def due(self, now: float | None = None) -> bool:
        """Whether the latest copy is an hour old and the file has changed since. Cheap: reads only file
        times.
        """
        now = time.time() if now is None else now
        latest = self.latest(now)
        if latest is None:
            return self.path.exists()
        written = max((_changed(self.path), _changed(self.path.with_name(self.path.name + "-wal"))))
        return written > latest.made_at and now - latest.made_at >= TIERS[0].seconds

    def latest(self, now: float) -> Backup | None:
        """The latest copy up to now; one from the future was made while the clock was wrong."""
        return next((backup for backup in self.list() if backup.made_at <= now), None)

    def make(
        self,
        now: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Backup | None:
        """Make a copy, check it and remove copies that are no longer needed, on a thread of the caller's.

        Returns None when cancelled. `progress` receives the fraction copied. Raises `DiskFull` if there is no
        room, `Damaged` if the file is damaged (earlier copies are left alone), otherwise `StoreError`.
        """
        now = time.time() if now is None else now
        target = (
            self.folder
            / f"{self.path.stem}-{datetime.fromtimestamp(now, UTC).strftime(_STAMP)}{self.path.suffix}"
        )
        part = target.with_name(target.name + ".part")
        try:
            size = self.path.stat().st_size  # before creating the folder: one that was removed stays removed
            private_folder(self.folder)
            for stale in self.folder.glob("*.part*"):
                stale.unlink()
            self._bound(size)
            self._check_room(size)
            private_file(part)
            if not self._copy(part, cancelled, progress):
                return None
            if damage := check_file(part, cancelled):
                raise Damaged(
                    _(
                        "The file {path} with your chats is damaged ({damage}). Restart Inglenook "
                        "to recover everything that can be read. Earlier backups are not affected.",
                        path=self.path,
                        damage=damage,
                    )
                )
            os.replace(part, target)
        except Damaged:
            request_check(self.path)
            raise
        except OSError as error:
            raise StoreError(
                _(
                    "No backup can be saved in {folder} ({strerror}).",
                    folder=self.folder,
                    strerror=error.strerror,
                )
            ) from error
        finally:
            remove_copy(part)
        self._bound(0)
        return Backup(target, now, target.stat().st_size)

    def _check_room(self, size: int) -> None:
        if shutil.disk_usage(self.folder).free < size + SPARE:
            raise DiskFull(
                _(
                    "There is not enough disk space for a backup in {folder}. It needs {size}.",
                    folder=self.folder,
                    size=size_text(size),
                )
            )

    def kept(self, now: float | None = None) -> dict[Path, str]:
        """The copies to keep, each with the name of the longest tier that keeps it.

        A copy from the future, made while the clock was wrong, never replaces another one.
        """
        found: dict[Path, str] = {}
        backups = self._in_order(now)
        for tier in TIERS:
            latest: dict[int, Path] = {}
            for backup in backups:
                latest.setdefault(int(backup.made_at // tier.seconds), backup.path)
            found.update((path, tier.name) for path in list(latest.values())[: tier.most])
        return found

    def _in_order(self, now: float | None = None) -> tuple[Backup, ...]:
        """All copies, latest first, with those from the future last."""
        limit = time.time() if now is None else now
        return tuple(sorted(self.list(), key=lambda backup: backup.made_at > limit))

    def _bound(self, coming: int) -> None:
        """Remove copies that no tier keeps; then, while they exceed the bound with `coming` bytes more, the
        oldest of the shortest tier.
        """
        kept, backups = self.kept(), [*self._in_order()]
        ranks = {tier.name: rank for rank, tier in enumerate(TIERS)}
        most = max(MOST_BYTES, MOST_TIMES * (self.path.stat().st_size if self.path.exists() else 0))
        for backup in [backup for backup in backups if backup.path not in kept]:
            backup.path.unlink(missing_ok=True)
            backups.remove(backup)
        for backup in sorted(backups[1:], key=lambda backup: (ranks[kept[backup.path]], backup.made_at)):
            if sum(other.size for other in backups) + coming <= most:
                break
            backup.path.unlink(missing_ok=True)
            backups.remove(backup)

    def _copy(self, part: Path, cancelled: Callable[[], bool], progress: Callable[[float], None]) -> bool:
        def step(_unused: int, left: int, total: int) -> None:
            if cancelled():
                raise _Cancelled
            progress(1 - left / max(total, 1))
            time.sleep(PAUSE_S)

        with (
            translated(self.path),
            contextlib.closing(connect_existing(self.path)) as source,
            contextlib.closing(sqlite3.connect(part)) as copy,
        ):
            copy.execute("PRAGMA journal_mode = OFF")
            copy.execute("PRAGMA synchronous = OFF")
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            try:
                source.backup(copy, pages=STEP_PAGES, progress=step)
            except _Cancelled:
                return False
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        return True


class _Cancelled(Exception):
    """The copy is no longer needed: the user cancelled it, or the program is ending."""


def prepare_restore(backup: Path, path: Path) -> Path:
    """Write a checked, migrated copy of the backup beside the file, for `put_in_place`. Can run on any
    thread.

    Raises `StoreError` and leaves nothing behind if the backup is damaged, cannot be copied, or was written
    by a newer version.
    """
    part = path.with_name(path.name + ".restored")
    try:
        shutil.copyfile(backup, private_file(part))
        damage = check_file(part)
        if damage:
            raise StoreError(
                _(
                    "The backup {backup} is damaged ({damage}). Choose an earlier one.",
                    backup=backup.name,
                    damage=damage,
                )
            )
        database = Database(part)
        try:
            database.execute("UPDATE messages SET state = 'stopped' WHERE state = 'running'")
        finally:
            database.close()
        for old in part.parent.glob(f"{part.stem}.before-*{part.suffix}"):
            old.unlink()  # kept by the migration; the backup itself is still there
        with part.open("rb+") as file:
            os.fsync(file.fileno())
    except (OSError, StoreError) as error:
        remove_copy(part)
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            _(
                "The backup {backup} cannot replace {path} ({strerror}).",
                backup=backup.name,
                path=path,
                strerror=error.strerror,
            )
        ) from error
    return part


def put_in_place(part: Path, path: Path) -> Path | None:
    """Replace the file, which must be closed, by `part`; returns where the file was moved, or None if there
    was none.

    Raises `StoreError`, leaving the present file in place.
    """
    moved: Path | None = None
    try:
        moved = set_aside(path, "before-restore") if path.exists() else None
        os.replace(part, path)
    except OSError as error:
        if moved is not None and not path.exists():
            moved.rename(path)
        raise StoreError(
            _("The backup cannot replace {path} ({strerror}).", path=path, strerror=error.strerror)
        ) from error
    finally:
        remove_copy(part)
    return moved


def count_conversations(backup: Path) -> int:
    """The number of conversations in a copy, without those in its trash; -1 if it cannot be read."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as connection:
            return int(
                connection.execute("SELECT count(*) FROM conversations WHERE deleted = 0").fetchone()[0]
            )
    except sqlite3.Error:
        return -1


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
