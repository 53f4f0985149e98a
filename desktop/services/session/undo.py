"""A short stack of actions that can be undone."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

__all__ = ["UndoStack"]

DEPTH = 50


class UndoStack(QObject):
    """The latest 50 undoable actions.

    Signals:
        available_changed(bool, str what): whether there is something to undo, and the latest action, such as
            "delete message".
    """

    available_changed = Signal(bool, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._actions: list[tuple[str, Callable[[], None]]] = []

    @property
    def what(self) -> str:
        """The latest action in words; "" for none."""
        return self._actions[-1][0] if self._actions else ""

    def push(self, what: str, undo: Callable[[], None]) -> None:
        """Add an action that `undo` reverts."""
        self._actions = [*self._actions, (what, undo)][-DEPTH:]
        self.available_changed.emit(True, what)

    def clear(self) -> None:
        """Forget all actions."""
        self._actions = []
        self.available_changed.emit(False, "")

    def undo(self) -> bool:
        """Undo the latest action; False if there is none."""
        if not self._actions:
            return False
        _, undo = self._actions.pop()
        self.available_changed.emit(bool(self._actions), self.what)
        undo()
        return True
