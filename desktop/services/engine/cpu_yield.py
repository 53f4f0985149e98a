"""Keeps a core free for the GUI thread while a model on the CPU writes and a piece of the reply is shown, or
the user acts.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt

from desktop.services.system.debounce import debounce
from engine.platform import core_yield

__all__ = ["CpuYield"]

_AFTER_PAINTING = Qt.EventPriority.LowEventPriority.value - 1
"""After what Qt posts to paint windows."""
_TURNS = 2
"""Turns of the event loop until text is painted: its rows are laid out in the first one, and what that
posts is done in the second.
"""
_HOLD_MS = 50
"""Milliseconds after the user's last action: three frames, in which the next action comes while the user
scrolls, and timers finish what the last one began.
"""


class CpuYield(QObject):
    """Asks only while it is `on`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.on = False
        self._turns = 0
        self._asked = False
        self._held = debounce(self, self._end_unless_needed, _HOLD_MS)

    def begin(self) -> None:
        """Something will be shown in this turn of the event loop: ask until it is painted."""
        if self.on and not self._turns:
            self._turns = _TURNS
            self._wait()
            self._ask()

    def hold(self) -> None:
        """The user has acted: ask until `_HOLD_MS` after the last action."""
        if self.on:
            self._held.start()
            self._ask()

    def end(self) -> None:
        """Stop asking."""
        self._turns, self._asked = 0, False
        self._held.stop()
        core_yield.give_back()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            core_yield.ask()

    def _end_unless_needed(self) -> None:
        if self._asked and not self._turns and not self._held.isActive():
            self.end()

    def _wait(self) -> None:
        QCoreApplication.postEvent(self, QEvent(QEvent.Type.User), _AFTER_PAINTING)

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.User:
            return super().event(event)
        if self._turns:
            self._turns -= 1
            if self._turns:
                self._wait()
            else:
                self._end_unless_needed()
        return True
