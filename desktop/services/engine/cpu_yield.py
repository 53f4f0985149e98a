"""Keeps a core free for the GUI thread while a model on the CPU writes and a piece of the reply is shown."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt

from engine.platform import core_yield

__all__ = ["CpuYield"]

_AFTER_PAINTING = Qt.EventPriority.LowEventPriority.value - 1
"""After what Qt posts to paint windows."""
_TURNS = 2
"""Turns of the event loop until text is painted: its rows are laid out in the first one, and what that
posts is done in the second.
"""


class CpuYield(QObject):
    """Asks only while it is `on`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.on = False
        self._turns = 0

    def begin(self) -> None:
        """Something will be shown in this turn of the event loop: ask until it is painted."""
        if self.on and not self._turns:
            self._turns = _TURNS
            self._wait()
            core_yield.ask()

    def end(self) -> None:
        """Stop asking."""
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
