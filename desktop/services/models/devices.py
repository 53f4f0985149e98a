"""Finds the GPUs on a thread of its own, because a driver may take seconds to start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.stream_thread import Job, StreamThread

if TYPE_CHECKING:
    from engine.backends.choice import Usable

__all__ = ["DeviceService", "FindDevices", "find_devices"]

FindDevices = Callable[[], "Usable"]
"""Finds the GPUs that models can run on, with their free memory, or the reason why there are none."""


def find_devices() -> Usable:
    """`engine.backends.choice.usable_gpus`, imported on first use."""
    from engine.backends.choice import usable_gpus

    return usable_gpus()


class DeviceService(QObject):
    """Looks for GPUs on request; `usable` is None before the first result.

    Signals:
        found(object): the new `engine.backends.choice.Usable`.
    """

    found = Signal(object)

    def __init__(self, find: FindDevices = find_devices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._find = find
        self._worker: StreamThread | None = None  # created on first use
        self._job: Job | None = None
        self._again = self._closed = False
        self.usable: Usable | None = None

    def look(self) -> None:
        """Look again. During a search, another one follows it: something may have changed meanwhile."""
        if self._closed:
            return
        if self._job is not None:
            self._again = True
            return
        if self._worker is None:
            self._worker = StreamThread("devices", self)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_failed)
        self._job = self._worker.start(self._run)

    def close(self) -> bool:
        """End the thread; False if it did not end in time."""
        self._closed = True
        return self._worker is None or self._worker.close()

    def _run(self, stop: threading.Event) -> Generator[None, None, Usable]:
        yield from ()  # a generator, because the thread runs generators
        return self._find()

    @Slot(int, object)
    def _on_finished(self, job_id: int, usable: Usable | None) -> None:
        if usable is not None and not self._closed:
            self.usable = usable
            self.found.emit(usable)
        self._next()

    @Slot(int, str, str)
    def _on_failed(self, job_id: int, sentence: str, details: str) -> None:
        self._next()

    def _next(self) -> None:
        again, self._job, self._again = self._again, None, False
        if again:
            self.look()
