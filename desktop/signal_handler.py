"""Ends the program cleanly on SIGTERM and SIGHUP: the session is closed, or a service is stopped.

Python's own handlers run only between two steps of Python code on the main thread, which Qt's event loop may
not reach for a long time. Therefore the number of the signal is written to a pipe, on which a thread waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["SignalHandler"]

LAST_S = 25.0
"""A program that has not ended after this many seconds is killed: longer than its threads are waited for."""


class SignalHandler:
    """Calls `end()` on a thread of its own at the first SIGTERM or SIGHUP; `interrupted()` before Ctrl+C
    exits.

    Created on the main thread; does nothing on Windows, where sessions end through windows.
    """

    def __init__(self, end: Callable[[], None], interrupted: Callable[[], None]) -> None:
        self._end, self._interrupted = end, interrupted
        self._before: dict[int, object] = {}
        self._asked = False
        self._last: threading.Timer | None = None
        if sys.platform == "win32":
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self._before[number] = signal.signal(number, _ignored)
        self._thread = threading.Thread(target=self._wait, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Restore the signal handlers and end the thread."""
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write, b"\0")
        self._thread.join()
        if self._last is not None:
            self._last.cancel()
            self._last.join()
        for descriptor in (self._read, self._write):
            os.close(descriptor)

    def _wait(self) -> None:
        while number := os.read(self._read, 1)[0]:
            if number == signal.SIGINT:
                self._interrupted()  # nothing else needs to be saved
                os._exit(128 + number)
            elif number in (signal.SIGTERM, signal.SIGHUP) and not self._asked:
                self._asked = True
                self._last = threading.Timer(LAST_S, os._exit, (128 + number,))
                self._last.daemon = True
                self._last.start()
                with contextlib.suppress(RuntimeError):  # Qt is already gone
                    self._end()


def _ignored(number: int, frame: FrameType | None) -> None:
    """Does nothing: the number has already been written to the pipe."""
