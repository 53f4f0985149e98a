"""Small files, written whole or not at all: a full disk leaves the file that was there as it is."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes, newline: str | None = None, synced: bool = True) -> None:
    """Put a new file with this text, in UTF-8, or with these bytes in the place of the one at `path`; of a
    link, in the place of what it leads to. Lines end as the system's do, or with `newline`. Where not
    `synced` it may be lost with the power: for what can be made again. Raises OSError, or UnicodeEncodeError,
    with nothing changed.
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
