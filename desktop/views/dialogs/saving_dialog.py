"""Dialogs whose changes are saved as they are made, with a Close button only."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent, QKeyEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import Banner
from engine.words import _

__all__ = ["SavingDialog"]


class SavingDialog(QDialog):
    """Saves before it closes; `save` returns False if pending changes cannot be saved, and says why.

    `warned`: a close was refused for that reason; closing again discards the changes.
    """

    def __init__(self, save: Callable[[], bool], parent: QWidget) -> None:
        super().__init__(parent)
        self._save, self._parent, self.warned = save, parent, False
        self.banner = Banner()

    def arrange(self, content: QWidget, characters: int, lines: int) -> None:
        """Show `content` above the banner and the Close button, in this size at most."""
        close = QPushButton(_("Close"))
        close.setAutoDefault(False)  # Enter in a field does not close the window.
        close.clicked.connect(self.close)
        foot = fill(QHBoxLayout(), 1, close)
        layout = fill(QVBoxLayout(self), (content, 1), self.banner, foot)
        dialog_margins(layout)
        metrics, room = self.fontMetrics(), self._parent.size()
        self.resize(
            min(metrics.averageCharWidth() * characters, room.width()),
            min(metrics.height() * lines, room.height()),
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc closes it, as the button does."""
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Save first. If that fails, the dialog stays open once; closing it again discards the changes."""
        saved = self._save()
        event.setAccepted(saved or self.warned)
        self.warned = not saved
