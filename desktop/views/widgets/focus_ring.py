"""The ring in a filled button that has the focus: its border has the colour of what it is filled with."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QApplication, QWidget

__all__ = ["FocusRing", "show_ring"]

_USUAL, _SEND = (3.0, 3.5), (4.0, 5.5)
"""Pixels from the edge of a button to the middle of the ring, and the radius of its corners."""
_WIDTH = 2.0


class FocusRing(QWidget):
    """Lies over `button` until it loses the focus. Style sheets draw two lines side by side with gaps at most
    screen scales; this one is smooth.
    """

    def __init__(self, button: QWidget) -> None:
        super().__init__(button)
        self._inset, self._radius = _SEND if button.objectName() == "send" else _USUAL
        self.setObjectName("focusRing")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        button.installEventFilter(self)
        self.resize(button.size())
        self.show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and isinstance(watched, QWidget):
            self.resize(watched.size())
        elif event.type() == QEvent.Type.DynamicPropertyChange and isinstance(watched, QWidget):
            self.setVisible(_is_filled(watched))
        elif event.type() == QEvent.Type.FocusOut:
            watched.removeEventFilter(self)
            self.hide()
            self.deleteLater()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QApplication.palette().color(QPalette.ColorRole.HighlightedText), _WIDTH))
        ring = QRectF(self.rect()).adjusted(self._inset, self._inset, -self._inset, -self._inset)
        painter.drawRoundedRect(ring, self._radius, self._radius)
        painter.end()


def show_ring(_before: QWidget | None, now: QWidget | None) -> None:
    """Put a ring into the button that has the focus `now`, if it is a filled one."""
    if now is not None and _is_filled(now) and now.findChild(FocusRing) is None:
        FocusRing(now)


def _is_filled(button: QWidget) -> bool:
    return button.property("tone") == "primary" or button.objectName() == "send"
