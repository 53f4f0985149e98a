"""Writes small files atomically: on a full disk the old file stays unchanged."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes, newline: str | None = None, synced: bool = True) -> None:
    """Replace the file at `path`, or the target of a link, by a new one with this content.

    Text is encoded as UTF-8, with the system's line ends or `newline`. If not `synced`, the file may be lost
    in a power failure. Raises OSError or UnicodeEncodeError, and changes nothing then.
    """
    if isinstance(content, str):
        content = content.replace("\n", os.linesep if newline is None else newline).encode("utf-8")
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
