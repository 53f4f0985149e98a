"""A frame that highlights a widget for a moment, to draw the eye to what was asked for."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRectF, Qt, QVariantAnimation
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QWidget

from desktop.views.widgets.motion import is_still

__all__ = ["Flash"]

_MS = 1600
_EDGE = 4


class Flash(QWidget):
    """Covers `target` and disappears after a while; without motion it does not fade."""

    def __init__(self, target: QWidget) -> None:
        super().__init__(target.parentWidget())
        self._target = target
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._strength = 1.0
        self._fade = QVariantAnimation(self)
        self._fade.setStartValue(1.0)
        self._fade.setKeyValueAt(0.5, 1.0)
        self._fade.setEndValue(0.0)
        self._fade.setDuration(_MS)
        self._fade.valueChanged.connect(self._show_strength)
        self._fade.finished.connect(self.close)
        target.installEventFilter(self)
        self._follow()
        self.show()
        self.raise_()
        self._fade.start()

    def _show_strength(self, value: float) -> None:
        self._strength = 1.0 if is_still() else float(value)
        self.update()

    def _follow(self) -> None:
        self.setGeometry(self._target.geometry().adjusted(-_EDGE, -_EDGE, _EDGE, _EDGE))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize):
            self._follow()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colour = QColor(self.palette().color(QPalette.ColorRole.Highlight))
        fill = QColor(colour)
        fill.setAlphaF(0.14 * self._strength)
        colour.setAlphaF(self._strength)
        painter.setBrush(fill)
        pen = painter.pen()
        pen.setColor(colour)
        pen.setWidthF(2.0)
        painter.setPen(pen)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)
        painter.end()
