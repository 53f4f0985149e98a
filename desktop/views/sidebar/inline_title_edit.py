"""A text box for editing a title in place in a list."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QLineEdit

from desktop.views.widgets.keys import claims

__all__ = ["InlineTitleEdit"]


class InlineTitleEdit(QLineEdit):
    """Covers `rect` of the list. Enter or leaving calls `done(text)` if the text changed; Esc cancels.

    `ended()`: it was closed.
    """

    ended = Signal()

    def __init__(
        self, view: QAbstractItemView, rect: QRect, text: str, name: str, done: Callable[[str], None]
    ) -> None:
        super().__init__(text, view.viewport())
        self._view, self._done = view, done
        self._before, self._ended = text, False
        self.setAccessibleName(name)
        self.setGeometry(rect)
        self.selectAll()
        view.verticalScrollBar().valueChanged.connect(self.leave)
        self.show()
        self.setFocus()

    def event(self, event: QEvent) -> bool:
        """Esc belongs to this box, although it stops replies everywhere else."""
        return claims(event, Qt.Key.Key_Escape) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter ends it here; otherwise the list would open the chat."""
        if event.key() == Qt.Key.Key_Escape:
            self._end()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.leave()
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Leave it, but not for its own menu or another window. (`editingFinished` needs typed text.)"""
        super().focusOutEvent(event)
        if event.reason() not in (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason):
            self.leave()

    def leave(self) -> None:
        """Close it, and pass on what was written."""
        if not self._ended:
            text = self.text().strip()
            self._end()
            if text != self._before:
                self._done(text)

    def _end(self) -> None:
        had_focus = self.hasFocus()
        self._ended = True
        self.hide()
        self.deleteLater()
        self.ended.emit()
        if had_focus:
            self._view.setFocus()
