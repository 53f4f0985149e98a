"""The disk that a download is saved to: is there room, and what went wrong."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from engine.errors import DownloadError
from engine.units import size_text
from engine.words import _

SPARE_BYTES = 32 << 20
"""Disk space that is left free."""


def free_disk(folder: Path) -> int:
    """Free bytes on the disk of `folder`, which need not exist. Raises `DownloadError`."""
    for place in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DownloadError(
                _(
                    "The folder {place} cannot be read ({strerror}); choose another for models.",
                    place=place,
                    strerror=error.strerror or error,
                )
            ) from error
    return 0


def check_disk(folder: Path, missing: int) -> None:
    """Raise `DownloadError` unless the disk has room for `missing` bytes more."""
    needed, free = missing + SPARE_BYTES, free_disk(folder)
    if free < needed:
        raise DownloadError(
            _(
                "it needs {size} more in {folder}, but only {size_2} are free there",
                size=size_text(needed),
                folder=folder,
                size_2=size_text(free),
            )
        )


def disk_trouble(error: OSError, folder: Path) -> str:
    """Why nothing can be written to `folder`, for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _("the disk of {folder} is full", folder=folder)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _("the folder {folder} is not writable", folder=folder)
    return f"{folder}: {error.strerror or error}"
