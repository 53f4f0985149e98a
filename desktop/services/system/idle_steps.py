"""Runs long work on the GUI thread in short steps: a few milliseconds, then the window has priority again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.store.database.database import StoreError

__all__ = ["Steps"]

SLICE_S = 0.005


class Steps(QObject):
    """One job at a time; a new one replaces it. `pause_ms` is the rest between two slices.

    Signals:
        ended(): the job is done.
        failed(str): the store raised an error in a step; the job was abandoned.
    """

    ended = Signal()
    failed = Signal(str)

    def __init__(
        self, parent: QObject | None = None, pause_ms: int = 0, busy: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(parent)
        self._busy = busy
        self._job: Iterator[object] | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(pause_ms)
        self._timer.timeout.connect(self._work)

    @property
    def running(self) -> bool:
        return self._job is not None

    def run(self, job: Iterator[object]) -> None:
        """Work on `job` from now on, except while `busy()`."""
        self._job = job
        self._timer.start()

    def take(self) -> Iterator[object] | None:
        """Stop the job and return the rest of it, or None."""
        job = self._job
        self.stop()
        return job

    def stop(self) -> None:
        """Abandon the job."""
        self._job = None
        self._timer.stop()

    @Slot()
    def _work(self) -> None:
        job = self._job
        if job is None or self._busy():
            return
        now = time.perf_counter()
        end = now + SLICE_S
        try:
            for _ in job:
                before, now = now, time.perf_counter()
                # another step like this one would exceed the slice
                if self._job is not job or now + (now - before) >= end:
                    return
        except StoreError as error:
            self.stop()
            self.failed.emit(str(error))
            return
        if self._job is job:
            self.stop()
            self.ended.emit()
