"""The round button that leads back to the end of the conversation."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from desktop.views.icons import IconButton
from desktop.views.transcript.look import TranscriptColours

__all__ = ["JumpButton"]


class JumpButton(IconButton):
    """Lies over the rows, so it paints its own ground."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("arrow-down", "Jump to the latest message", parent)
        self.colours: TranscriptColours | None = None
        self.setFixedSize(36, 36)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.colours is not None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(self.colours.line, 1.2))
            painter.setBrush(self.colours.background)
            painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
            if self.underMouse() or self.hasFocus():
                painter.setPen(QPen(self.colours.muted, 1.6))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
            side = self.iconSize().width()
            self.icon().paint(painter, (self.width() - side) // 2, (self.height() - side) // 2, side, side)
            painter.end()
