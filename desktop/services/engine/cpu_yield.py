"""While a model computes on the processor, the GUI thread asks its threads for room before it shows a
piece of the reply.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt

from engine.platform import core_yield

__all__ = ["CpuYield"]

_AFTER_PAINTING = Qt.EventPriority.LowEventPriority.value - 1
"""Behind what Qt posts to have windows painted."""
_TURNS = 2
"""From the text's arrival until it is drawn: its rows are laid out in the first, and what that posts is
done behind all of it.
"""


class CpuYield(QObject):
    """Asks only while it is `on`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.on = False
        self._turns = 0

    def begin(self) -> None:
        """Something arrived that will be shown in this turn of the event loop: ask until it is painted."""
        if self.on and not self._turns:
            self._turns = _TURNS
            self._wait()
            core_yield.ask()

    def end(self) -> None:
        """Ask no more."""
        self._turns = 0
        core_yield.give_back()

    def _wait(self) -> None:
        QCoreApplication.postEvent(self, QEvent(QEvent.Type.User), _AFTER_PAINTING)

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.User:
            return super().event(event)
        if self._turns > 1:
            self._turns -= 1
            self._wait()
        elif self._turns:
            self.end()
        return True
