"""The folder of all user data, and where a file there goes that cannot be used."""

from __future__ import annotations

import time
from pathlib import Path

from desktop.store.database.errors import StoreError, not_created
from engine.platform.folders import data_dir, private_folder, usual_data_dir
from engine.platform.moved_data import NOTE_NAME, read_moved
from engine.words import _


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
