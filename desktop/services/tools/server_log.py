"""The last lines that a tool server wrote to its standard error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

__all__ = ["MOST_KEPT", "ServerLog"]

MOST_KEPT = 20_000
"""Characters."""
_TELL_S = 0.25
"""Lines that come soon after each other are told together."""


class ServerLog:
    """Lines from a pipe, read by a thread: asyncio cannot read pipes on Windows. `tell` is called in the
    loop when there is more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
        self._loop, self._tell = loop, tell
        self._lock = threading.Lock()
        self._text = ""
        self._waits = self._closed = False

    @property
    def text(self) -> str:
        """The last `MOST_KEPT` characters."""
        with self._lock:
            return self._text

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), "")

    def add(self, line: str) -> None:
        """Add a line; from any thread."""
        self._add(f"{line}\n")

    def pipe(self) -> int:
        """The end of a new pipe for a process to write to; the caller closes it."""
        read, write = os.pipe()
        threading.Thread(target=self._read, args=(read,), name="tool-server-log", daemon=True).start()
        return write

    def close(self) -> None:
        """Tell nothing any more, except by `tell` of the caller's own."""
        self._closed = True

    def _read(self, pipe: int) -> None:
        """Until every process that has the other end is gone."""
        with open(pipe, encoding="utf-8", errors="replace", buffering=1) as lines:
            while text := lines.readline(MOST_KEPT):
                self._add(text)

    def _add(self, text: str) -> None:
        with self._lock:
            self._text = (self._text + text)[-MOST_KEPT:]
            if self._waits or self._closed:
                return
            self._waits = True
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._loop.call_later, _TELL_S, self._tell_now)

    def _tell_now(self) -> None:
        with self._lock:
            self._waits = False
        if not self._closed:
            self._tell()
