"""Text in the middle of an empty list: what it will contain, and how to add the first entry."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QLabel

from desktop.views.layout.spacing import SCALE

__all__ = ["EmptyState"]


class EmptyState(QLabel):
    """Covers `view`, whose model is already set, while it has no rows; also its accessible description."""

    def __init__(self, view: QAbstractItemView, words: str) -> None:
        super().__init__(words, view.viewport())
        self._view, self._least = view, view.minimumHeight()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setMargin(SCALE[3])
        self.setProperty("tone", "muted")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        model = view.model()
        for signal in (model.rowsInserted, model.rowsRemoved, model.modelReset):
            signal.connect(self._show)
        view.viewport().installEventFilter(self)
        self._show()

    def say(self, words: str) -> None:
        """Replace the text."""
        self.setText(words)
        self._show()

    def _show(self) -> None:
        empty = self._view.model().rowCount() == 0
        self.setVisible(empty)
        self._view.setAccessibleDescription(self.text() if empty else "")
        self._place()

    def _place(self) -> None:
        """Cover the view, which is high enough for the words while they are seen."""
        area = self._view.viewport().rect()
        self.setGeometry(area)
        frame = self._view.height() - area.height()
        needed = frame + self.heightForWidth(area.width()) if self.isVisible() else 0
        if self._view.minimumHeight() != max(self._least, needed):
            self._view.setMinimumHeight(max(self._least, needed))

    def showEvent(self, event: QShowEvent) -> None:
        """A page that comes into sight at the size that it had gets no other event."""
        super().showEvent(event)
        self._place()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._place()
        return False
