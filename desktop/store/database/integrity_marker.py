"""Small files beside a database that tell the next opening whether it is suspect or known to be intact.

A full check reads the whole file. A file that was intact when the program closed it, and has not been written
since, is not checked at the next start; `desktop.services.system.backups` checks for damage by the disk in
the background.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from engine.platform.folders import private_file

__all__ = [
    "check_done", "check_requested", "known_intact", "note_intact", "remove_copy", "request_check",
    "was_emptied",
]  # fmt: skip

_CHECK, _WHOLE = ".check", ".whole"


def request_check(path: Path) -> None:
    """Have the whole file checked when it is next opened, however large, because damage was found."""
    with contextlib.suppress(OSError):
        private_file(_beside(path, _CHECK))


def check_requested(path: Path) -> bool:
    """Whether a check was requested."""
    return _beside(path, _CHECK).exists()


def check_done(path: Path) -> None:
    """The whole file was checked or replaced."""
    _beside(path, _CHECK).unlink(missing_ok=True)


def note_intact(path: Path) -> None:
    """Record that the closed file is intact as it is now, unless a log beside it holds a part of it."""
    with contextlib.suppress(OSError):
        if not _has_log(path):
            state = _state(path)  # first: raises for a database in memory, which has no file
            private_file(_beside(path, _WHOLE)).write_text(state, encoding="ascii")


def known_intact(path: Path) -> bool:
    """Whether the file is unchanged since `note_intact`, with no damage found since."""
    try:
        return (
            not check_requested(path)
            and not _has_log(path)
            and _beside(path, _WHOLE).read_text(encoding="ascii") == _state(path)
        )
    except (OSError, UnicodeDecodeError):
        return False


def was_emptied(path: Path) -> bool:
    """Whether a file that was intact when it was closed has lost all it had, as a file system may leave it
    after a power failure.
    """
    try:
        return path.stat().st_size == 0 and not _has_log(path) and _beside(path, _WHOLE).stat().st_size > 0
    except OSError:
        return False


def remove_copy(path: Path) -> None:
    """Remove a closed database that is not needed, with what is beside it, as far as it exists."""
    for suffix in ("", "-wal", "-shm", _CHECK, _WHOLE):
        with contextlib.suppress(OSError):
            _beside(path, suffix).unlink()


def _state(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
