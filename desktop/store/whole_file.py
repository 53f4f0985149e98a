"""Small files, written whole or not at all: a full disk leaves the file that was there as it is."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, text: str, newline: str | None = None) -> None:
    """Put a new file with this text, in UTF-8, in the place of the one at `path`; of a link, in the place of what it
    leads to. Raises OSError, or UnicodeEncodeError, with nothing changed.
    """
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline=newline) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
