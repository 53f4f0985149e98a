"""Runs Python's cyclic garbage collector on the GUI thread only, in pauses.

Python's own collection runs on whichever thread allocates. There it could delete Qt objects off their thread,
which crashes, and a full collection (tens of milliseconds with a model loaded) would fall into the middle of
a frame.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Slot

from desktop.services.system.malloc_trim import find_trim

__all__ = ["GarbageCollector"]

INTERVAL_MS = 250
TRIM_S = 20.0
_MAX_DELAY = 20
"""How many times longer than usual a full collection may wait for a pause."""
_MOST_YOUNG = 200_000
"""With more young objects than this (a few dozen MB), collect even while the user is active."""


class GarbageCollector(QObject):
    """Replaces Python's automatic collection until `close`.

    A full collection waits while `busy()`. While `acting()`, that is, while the user scrolls or types, every
    collection waits: even the youngest generation takes a third of a frame.
    """

    def __init__(
        self, busy: Callable[[], bool], acting: Callable[[], bool], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._busy, self._acting = busy, acting
        self._trim: Callable[[], object] | None = None
        self._trimmed = time.monotonic()
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self.look)
        self._timer.start()

    @Slot()
    def look(self) -> None:
        """Collect the youngest generation when it is large, and older ones after a number of younger ones,
        like Python.

        In a pause older generations are collected sooner, so that it need not happen during a reply: after
        the start there are many objects. Every `TRIM_S` free memory is returned to the system.
        """
        self._trim_memory()
        young, middle, old = gc.get_count()
        first, second, third = gc.get_threshold()
        if not first or young <= first or (young < _MOST_YOUNG and self._acting()):
            return
        busy = self._busy()
        if old > third and (not busy or old > third * _MAX_DELAY):
            gc.collect(2)
        else:
            gc.collect(1 if middle > second or (middle and not busy) else 0)

    def _trim_memory(self) -> None:
        if time.monotonic() - self._trimmed < TRIM_S or self._busy() or self._acting():
            return
        if self._trim is None:
            self._trim = find_trim()
        self._trim()
        self._trimmed = time.monotonic()

    def close(self) -> None:
        """Restore Python's automatic collection if it was on."""
        self._timer.stop()
        if self._was_enabled:
            gc.enable()
