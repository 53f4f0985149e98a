"""The box above settings in which one searches them."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit

from desktop.views.widgets.combo_box import add_clear_button

__all__ = ["SearchLine"]


class SearchLine(QLineEdit):
    """Esc clears it, even while it would stop a reply elsewhere; Down moves to the results.

    `name` is its placeholder and what a screen reader calls it.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setProperty("tone", "search")
        self.setPlaceholderText(name)
        self.setAccessibleName(name)
        add_clear_button(self)

    def event(self, event: QEvent) -> bool:
        mine = isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape and bool(self.text())
        if mine and event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() == Qt.Key.Key_Down:
            self.focusNextChild()
        else:
            super().keyPressEvent(event)
