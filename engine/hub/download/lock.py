"""A lock on an open file, held until the process ends at the latest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from filelock import lock_descriptor, unlock_descriptor

from engine.errors import DownloadError
from engine.words import _


@contextmanager
def locked(file: IO[bytes]) -> Iterator[None]:
    """Hold the lock of an open file. Raises `DownloadError` if another process or download holds it."""
    if not lock_descriptor(file.fileno(), blocking=False):
        raise DownloadError(_("another download of it is in progress; try again when it has ended"))
    try:
        yield
    finally:
        unlock_descriptor(file.fileno())
