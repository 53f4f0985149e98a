"""Searches for cyclic garbage on the GUI thread only, in pauses: Python's own search runs on whatever thread
makes an object.

There it would delete Qt's objects away from their thread, which ends in a crash, and a whole search (tens of
milliseconds with a model loaded) would fall into the middle of a frame.
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
_PATIENCE = 20
"""How many times longer than usual a whole search may wait for a pause."""
_MOST_YOUNG = 200_000
"""So many young objects are searched even while the user acts: a few dozen megabytes."""


class GarbageCollector(QObject):
    """Takes the place of Python's automatic search until `close`. While `busy()` a whole search waits; while
    `acting()`, which is when the user scrolls or types, every search does: of the youngest objects, too, it
    takes a third of a frame.
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
        """Search the youngest objects when there are many, older ones after so many searches of younger ones;
        as Python does.

        In a pause older ones are searched sooner, so that it need not be done while a reply runs: after a
        start there are many. And once in `TRIM_S` free memory goes back to the system.
        """
        self._give_back()
        young, middle, old = gc.get_count()
        first, second, third = gc.get_threshold()
        if not first or young <= first or (young < _MOST_YOUNG and self._acting()):
            return
        busy = self._busy()
        if old > third and (not busy or old > third * _PATIENCE):
            gc.collect(2)
        else:
            gc.collect(1 if middle > second or (middle and not busy) else 0)

    def _give_back(self) -> None:
        if time.monotonic() - self._trimmed < TRIM_S or self._busy() or self._acting():
            return
        if self._trim is None:
            self._trim = find_trim()
        self._trim()
        self._trimmed = time.monotonic()

    def close(self) -> None:
        """Let Python search by itself again, if it did."""
        self._timer.stop()
        if self._was_enabled:
            gc.enable()
