"""While a model computes on the processor, the GUI thread asks its threads for room before it shows a piece of the reply."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer, Slot

from engine import room

__all__ = ["RoomAsker"]

_TURNS = 2
"""Turns of the event loop from the text's arrival until it is drawn: its rows are laid out in the first, painted in the second."""


class RoomAsker(QObject):
    """Asks only while it is `on`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.on = False
        self._turns = 0
        self._turn = QTimer(self)
        self._turn.setInterval(0)
        self._turn.timeout.connect(self._on_turn)

    def begin(self) -> None:
        """Something arrived that will be shown: ask until that is done."""
        if self.on and not self._turns:
            self._turns = _TURNS
            self._turn.start()
            room.ask()

    def end(self) -> None:
        """Ask no more."""
        self._turn.stop()
        self._turns = 0
        room.give_back()

    @Slot()
    def _on_turn(self) -> None:
        self._turns -= 1
        if self._turns <= 0:
            self._turn.stop()
            QCoreApplication.postEvent(self, QEvent(QEvent.Type.User), Qt.EventPriority.LowEventPriority.value)

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.User:
            return super().event(event)
        self.end()
        return True
