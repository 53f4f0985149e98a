"""A lock on an open file, held until the process ends at the latest.

`filelock` locks by path and leaves its lock files behind; here the partial file itself is locked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from engine.errors import DownloadError

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 40
    """Locked bytes cannot be read on Windows, so a byte far beyond the end is locked."""

    def _take(file: IO[bytes]) -> None:
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def _give(file: IO[bytes]) -> None:
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _give(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def locked(file: IO[bytes]) -> Iterator[None]:
    """Hold the lock of an open file. Raises `DownloadError` if another process or download holds it."""
    try:
        _take(file)
    except OSError as error:
        raise DownloadError(
            "another download of it is under way or just ending; try again in a moment"
        ) from error
    try:
        yield
    finally:
        _give(file)
