"""Finds the GPUs on a thread of its own, because a driver may take seconds to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.background import Background

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
        self._background = Background("devices", self)
        self._looking = self._again = False
        self.usable: Usable | None = None

    def look(self) -> None:
        """Look again. During a search, another one follows it: something may have changed meanwhile."""
        if self._looking:
            self._again = True
            return
        self._looking = True
        self._background.call(lambda _stop: self._find(), self._on_found)

    def close(self) -> bool:
        """End the thread; False if it did not end in time."""
        return self._background.close()

    def _on_found(self, usable: Usable | None) -> None:
        if usable is not None:
            self.usable = usable
            self.found.emit(usable)
        again, self._looking, self._again = self._again, False, False
        if again:
            self.look()
