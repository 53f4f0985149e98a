"""Follows the end of a log file that grows and may be rotated at any moment."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from engine.lazy_dataclass import dataclass

__all__ = ["LEVELS", "LogEntry", "LogTail"]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FIRST_BYTES = 256_000
_HEAD = re.compile(
    r"\d{4}-(?P<time>\d\d-\d\d \d\d:\d\d:\d\d),\d+ (?P<level>[A-Z]+) +(?:MainThread )?(?P<text>.*)"
)


@dataclass(frozen=True)
class LogEntry:
    """One entry for display, without year and main thread, and the index of its level in `LEVELS`."""

    text: str
    level: int


class LogTail:
    """Reads a log of `desktop.diagnostics`: first the end of the file, then what was added since the last
    call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = -1
        self._inode = 0
        self._rest = b""

    def read(self) -> list[LogEntry]:
        """The new entries. Lines that continue an entry of an earlier call become an entry of its level."""
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                size = file.seek(0, 2)
                if self._place < 0:
                    self._place = max(0, size - _FIRST_BYTES)
                    skips = self._place > 0
                else:
                    skips = False
                    # the file was rotated
                    if size < self._place or status.st_ino != self._inode:
                        self._place, self._rest = 0, b""
                self._inode = status.st_ino
                file.seek(self._place)
                data = file.read()
                self._place += len(data)
        except OSError:  # nothing has been written yet
            return []
        if skips:
            data = data.partition(b"\n")[2]
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        return self._entries(whole.decode("utf-8", "replace").splitlines()) if end else []

    def _entries(self, lines: list[str]) -> list[LogEntry]:
        found: list[LogEntry] = []
        for line in lines:
            head = _HEAD.fullmatch(line)
            if head is not None:
                self._level = LEVELS.index(head["level"]) if head["level"] in LEVELS else 1
                found.append(LogEntry(f"{head['time']}  {head['level']:<7}  {head['text']}", self._level))
            elif found and not line.strip():
                continue  # the end of a trace
            elif found:
                found[-1] = replace(found[-1], text=f"{found[-1].text}\n{line}")
            else:
                found.append(LogEntry(line, self._level))
        return found

    _level = 1
