"""Moves the data to another folder while nothing else uses it; at every moment one folder holds all of it.

The new folder is filled, checked and written to disk. Only then a note (`engine.platform.moved_data`) in the
folder where the program looks first names it: the note is replaced atomically, and is the moment of the move.
The old folder is left as it was. A list of what is being copied lies in the new folder meanwhile, so that a
move that was interrupted can be cleared away.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from desktop.store.database.connecting import check_file, connect_existing
from desktop.store.database.database import FILE_NAME, DiskFull, StoreError
from desktop.store.database.errors import translated
from desktop.store.privacy import OUR_FILES
from engine.platform.folders import DATA_VARIABLE, data_dir, private_folder, usual_data_dir
from engine.platform.language import PREFERENCES
from engine.platform.moved_data import NOTE_NAME, Moved, read_moved, write_moved
from engine.platform.whole_file import write_whole
from engine.printable import json_text
from engine.units import size_text
from engine.words import N_, _, translate

__all__ = [
    "LIST_NAME", "STOPPED", "Progress", "arrived", "copy_before", "data_bytes", "delete_before",
    "fixed_place", "move_data", "new_place_trouble",
]  # fmt: skip

LIST_NAME = ".inglenook-moving"
STOPPED = N_("The move was stopped. Your data is still in its old place.")
SPARE = 64 << 20
CHUNK = 4 << 20
_NOT_COPIED = ("inglenook.lock", "inglenook.socket")
_PATH_TABLES = ("conversations", "personas")


class Progress(NamedTuple):
    """How far a move is: bytes of `total`, each counted twice, for copying and for checking."""

    stage: str
    done: int
    total: int


def fixed_place() -> str:
    """Why the data cannot be moved from the window; "" if it can."""
    if os.environ.get(DATA_VARIABLE):
        return _(
            "The data folder was chosen with --data or {data_variable}. To move it, quit "
            "Inglenook, move the folder, and name the new one there.",
            data_variable=DATA_VARIABLE,
        )
    return "" if data_dir() in _own_places() else (
        _("This is a portable copy of Inglenook: its data is next to the program. To move the data, quit "
        "Inglenook and move both together.")
    )  # fmt: skip


def data_bytes(folder: Path) -> int:
    """The size of the program's files in a folder."""
    return sum(file.lstat().st_size for file in _files(folder, _names(folder)))


def new_place_trouble(source: Path, target: Path) -> str:
    """Why the data in `source` cannot be moved to `target`, in a sentence; "" if it can."""
    here, there = source.resolve(), target.resolve()
    if there == here:
        return _("Your data is already in {source}. Choose another folder.", source=source)
    if there.is_relative_to(here):
        return _(
            "{target} is inside the data folder {source}. Choose a folder outside it.",
            target=target,
            source=source,
        )
    try:
        if target.exists() and not target.is_dir():
            return _("{target} is a file. Choose a folder.", target=target)
        if target.is_dir() and _foreign(target):
            return _(
                "The folder {target} is not empty. Choose an empty one, or create one in it.", target=target
            )
        nearest = next(place for place in (target, *target.parents) if place.is_dir())
        if not os.access(nearest, os.W_OK | os.X_OK):
            return _(
                "Nothing can be written in {nearest}. Choose another folder, or make this one writable.",
                nearest=nearest,
            )
        needed, free = data_bytes(source) + SPARE, shutil.disk_usage(nearest).free
    except OSError as error:
        return _(
            "{target} cannot be used ({strerror}). Choose another folder.",
            target=target,
            strerror=error.strerror,
        )
    if free < needed:
        return _(
            "Your data needs {size} in {target}, but only {size_2} are free there.",
            size=size_text(needed),
            target=target,
            size_2=size_text(free),
        )
    return ""


def move_data(source: Path, target: Path, stop: threading.Event) -> Generator[Progress, None, None]:
    """Copy the program's files from `source` to `target`, check them, and use those from now on.

    The caller holds the lock of `source`, and nothing else writes there. Setting `stop` ends it. Raises
    `StoreError`, with nothing changed and what was copied removed.
    """
    if trouble := new_place_trouble(source, target):
        raise StoreError(trouble)
    existed = target.is_dir()
    try:
        (source / LIST_NAME).unlink(missing_ok=True)
        private_folder(target)
        _clear(target)
        names = _names(source)
        write_whole(target / LIST_NAME, json.dumps(names))
        yield from _copy_and_check(source, target, names, stop)
        _follow_models(source, target)
        _sync_folders(target, names)
        write_moved(private_folder(usual_data_dir()), Moved(target, source))
    except BaseException as error:
        with contextlib.suppress(OSError):
            _clear(target)
            if not existed:
                target.rmdir()
        if isinstance(error, OSError):
            raise _sentence(error, target) from error
        raise


def arrived(folder: Path) -> bool:
    """Whether the data has just been moved to this folder; true once."""
    try:
        (folder / LIST_NAME).unlink()
    except OSError:
        return False
    return True


def copy_before(folder: Path) -> Path | None:
    """The folder from before the last move, if it still has a copy of the data in `folder`."""
    with contextlib.suppress(OSError):
        moved = read_moved(usual_data_dir())
        if moved and moved.folder == folder and moved.before and _names(moved.before):
            return moved.before
    return None


def delete_before(folder: Path) -> None:
    """Delete the copy that `copy_before` found; other files there stay. Raises `StoreError`."""
    before = copy_before(folder)
    if before is None or before.resolve() == folder.resolve():
        return
    try:
        for name in _names(before):
            _remove(before / name)
        with contextlib.suppress(OSError):
            before.rmdir()
        write_moved(usual_data_dir(), Moved(folder))
    except OSError as error:
        raise StoreError(
            _("Not all of {before} could be deleted ({strerror}).", before=before, strerror=error.strerror)
        ) from error


# -- parts
# --------------------------------------------------------------------------------------------------------


def _own_places() -> tuple[Path, ...]:
    moved = read_moved(usual_data_dir())
    return (usual_data_dir(), *((moved.folder,) if moved else ()))


def _names(folder: Path) -> list[str]:
    """The program's own entries in a folder."""
    found = {path.name for path in chain.from_iterable(folder.glob(pattern) for pattern in OUR_FILES)}
    return sorted(found - set(_NOT_COPIED))


def _files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Every file and link below these entries. Links are not followed."""
    for name in names:
        path = folder / name
        if path.is_symlink() or path.is_file():
            yield path
        elif path.is_dir():
            yield from _files(path, sorted(child.name for child in path.iterdir()))


def _foreign(target: Path) -> list[str]:
    """What is in a folder besides the rest of an interrupted move."""
    rest = {NOTE_NAME, *_rest(target)}
    return [path.name for path in target.iterdir() if path.name not in rest]


def _rest(target: Path) -> list[str]:
    """What an interrupted move has left: copies, SQLite's files beside them, and `write_whole`'s."""
    names = [LIST_NAME, *_listed(target)]
    patterns = [
        pattern for name in map(glob.escape, names) for pattern in (f"{name}-*", f".{name}-*.new", name)
    ]
    return [path.name for pattern in patterns for path in target.glob(pattern)]


def _listed(target: Path) -> list[str]:
    """What an interrupted move was copying to a folder: plain names only."""
    try:
        found = json.loads((target / LIST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    names = found if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str) and Path(name).name == name]


def _clear(target: Path) -> None:
    """Remove what an interrupted move has left."""
    for name in sorted(_rest(target), key=LIST_NAME.__eq__):  # the list last
        _remove(target / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy_and_check(
    source: Path, target: Path, names: Sequence[str], stop: threading.Event
) -> Iterator[Progress]:
    files = list(_files(source, names))
    total, done = 2 * sum(file.lstat().st_size for file in files if not file.is_symlink()), 0
    hashes: dict[Path, bytes] = {}
    for stage, work in ((_("Copying your data"), _copy), (_("Checking the copy"), _read)):
        for file in files:
            path = target / file.relative_to(source)
            if file.is_symlink():
                _copy_link(file, path)
                continue
            digest = hashlib.sha256()
            for chunk in work(file, path):
                if stop.is_set():
                    raise StoreError(translate(STOPPED))
                digest.update(chunk)
                done += len(chunk)
                yield Progress(stage, min(done, total), total)
            if hashes.setdefault(file, digest.digest()) != digest.digest():
                raise StoreError(
                    _(
                        "The copy of {file} in {target} is not what was written: its disk may be "
                        "failing. Your data is still in its old place.",
                        file=file.name,
                        target=target,
                    )
                )


def _copy(file: Path, path: Path) -> Iterator[bytes]:
    """Copy a file onto the disk; yields what was read."""
    private_folder(path.parent)
    with file.open("rb") as source, path.open("wb") as copy:
        while chunk := source.read(CHUNK):
            copy.write(chunk)
            yield chunk
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(file, path)


def _read(file: Path, path: Path) -> Iterator[bytes]:
    with path.open("rb") as copy:
        while chunk := copy.read(CHUNK):
            yield chunk


def _copy_link(link: Path, path: Path) -> None:
    """Copy a link so that it leads to the same file from the new folder."""
    if not os.path.lexists(path):
        private_folder(path.parent)
        path.symlink_to(link.parent / os.readlink(link))


def _follow_models(source: Path, target: Path) -> None:
    """In the copy, change paths of downloaded models, which were moved too."""
    before, after = f"{source / 'models'}{os.sep}", f"{target / 'models'}{os.sep}"
    preferences = target / PREFERENCES
    with contextlib.suppress(FileNotFoundError, ValueError):  # what is damaged is set aside at the start
        content = _with_prefix(json.loads(preferences.read_text(encoding="utf-8")), before, after)
        write_whole(preferences, json_text(json.dumps(content, indent=2, ensure_ascii=False)) + "\n")
    database = target / FILE_NAME
    if not database.exists():
        return
    with translated(database), contextlib.closing(connect_existing(database)) as connection:
        for table in _PATH_TABLES:
            with contextlib.suppress(sqlite3.OperationalError):  # an older version had no such table
                connection.execute(
                    f"UPDATE {table} SET model_path = ? || substr(model_path, ?) "
                    "WHERE substr(model_path, 1, ?) = ?",
                    (after, len(before) + 1, len(before), before),
                )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if damage := check_file(database):
        raise StoreError(
            _(
                "The copy of your chats in {target} cannot be read ({damage}). They have not moved.",
                target=target,
                damage=damage,
            )
        )


def _with_prefix(value: Any, before: str, after: str) -> Any:
    """JSON with another beginning of all texts, names included, that begin with `before`."""
    if isinstance(value, str):
        return after + value[len(before) :] if value.startswith(before) else value
    if isinstance(value, list):
        return [_with_prefix(item, before, after) for item in value]
    if isinstance(value, dict):
        return {
            _with_prefix(key, before, after): _with_prefix(item, before, after) for key, item in value.items()
        }
    return value


def _sync_folders(target: Path, names: Sequence[str]) -> None:
    """Let the new names survive a power failure, where folders can be synchronised."""
    if os.name != "posix":
        return
    for folder in {target, *(file.parent for file in _files(target, names))}:
        handle = os.open(folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network drives cannot
                os.fsync(handle)
        finally:
            os.close(handle)


def _sentence(error: OSError, target: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            _("The disk of {target} is full. Your data is still in its old place.", target=target)
        )
    return StoreError(
        _(
            "Your data cannot be copied to {target} ({strerror}). It is still in its old place.",
            target=target,
            strerror=error.strerror or error,
        )
    )
