"""While a model computes on the processor, the GUI thread asks its threads for room before it shows a piece of the reply."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt

from engine import room

__all__ = ["RoomAsker"]

_AFTER_PAINTING = Qt.EventPriority.LowEventPriority.value - 1
"""Behind what Qt posts to have windows painted."""


class RoomAsker(QObject):
    """Asks only while it is `on`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.on = False
        self._asks = False

    def begin(self) -> None:
        """Something arrived that will be shown in this turn of the event loop: ask until it is painted."""
        if self.on and not self._asks:
            self._asks = True
            QCoreApplication.postEvent(self, QEvent(QEvent.Type.User), _AFTER_PAINTING)
            room.ask()

    def end(self) -> None:
        """Ask no more."""
        self._asks = False
        room.give_back()

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.User:
            return super().event(event)
        self.end()
        return True
