"""Files that others chose: what is not a regular file is never opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["regular_file"]


def regular_file(path: Path) -> os.stat_result:
    """What the system tells of the file at `path`. Raises OSError if there is none, and if it is a folder, a
    pipe, a socket or a device: to open a pipe would wait until something writes into it.
    """
    try:
        facts = path.stat()
    except ValueError as error:  # a null character in the name
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    return facts
