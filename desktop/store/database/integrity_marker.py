"""Little files beside a database that tell the next opening what is known of it: that something was wrong, or
that it was whole.

A full check reads the whole file. One that was whole when the program closed it, and has neither been written
nor grown a log since, is not read again at the next start; `desktop.services.system.backups` looks for what a
disk did to it, behind the window.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from engine.platform.folders import private_file

__all__ = ["BESIDE", "check_done", "check_requested", "known_whole", "note_whole", "request_check"]

_CHECK, _WHOLE = ".check", ".whole"
BESIDE = (_CHECK, _WHOLE)
"""What is added to a database's name for these files."""


def request_check(path: Path) -> None:
    """Have the whole file checked when it is opened next, however large it is; for damage met in mid-work."""
    with contextlib.suppress(OSError):
        private_file(_beside(path, _CHECK))


def check_requested(path: Path) -> bool:
    """Whether something was wrong with the file."""
    return _beside(path, _CHECK).exists()


def check_done(path: Path) -> None:
    """The whole file was checked, or another one has its place."""
    _beside(path, _CHECK).unlink(missing_ok=True)


def note_whole(path: Path) -> None:
    """The file was closed and is whole, as it lies there now.

    Nothing is noted while a log beside it holds a part of it.
    """
    with contextlib.suppress(OSError):
        if not _has_log(path):
            state = _state(path)  # first: what is in memory has none, and no file beside it
            private_file(_beside(path, _WHOLE)).write_text(state, encoding="ascii")


def known_whole(path: Path) -> bool:
    """Whether the file lies there as it did when `note_whole` was called, and nothing was found wrong with
    it since.
    """
    try:
        return (
            not check_requested(path)
            and not _has_log(path)
            and _beside(path, _WHOLE).read_text(encoding="ascii") == _state(path)
        )
    except (OSError, UnicodeDecodeError):
        return False


def _state(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
