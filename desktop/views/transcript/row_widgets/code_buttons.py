"""The buttons of a block of code, which stay in sight while any of the block is."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from desktop.views.transcript.row_widgets.box import paint_box
from desktop.views.transcript.style import Style
from desktop.views.widgets.icons import IconButton
from engine.words import _

__all__ = ["CodeButtons"]

_SMALLEST = 24
"""The least side of a button in pixels."""


class CodeButtons(QWidget):
    """Wrap, save and copy, in the head of a block; below the top of the screen, over the code, while the head
    is above it.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.wrap = IconButton("wrap", _("Wrap long lines"), self)
        self.wrap.setCheckable(True)
        self.save = IconButton("download", _("Save code as a file"), self)
        self.copy = IconButton("copy", _("Copy code"), self)
        self.all = (self.wrap, self.save, self.copy)
        self._style: Style | None = None
        self._over = False
        self.hide()

    def set_style(self, style: Style) -> None:
        """Take the size of the text and the colours."""
        self._style = style
        side = max(_SMALLEST, style.px(1.75))
        for place, button in enumerate(self.all):
            button.setFont(style.small_font)
            button.setGeometry(place * side, 0, side, side)
        self.resize(len(self.all) * side, side)

    def place(self, right: int, top: int, over: bool) -> None:
        """Put the right end of the buttons at `right` and their top at `top`, `over` the code or in its
        head.
        """
        self.move(right - self.width(), top)
        if over != self._over:
            self._over = over
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._over and self._style is not None:
            painter, colours = QPainter(self), self._style.colours
            paint_box(painter, QRectF(self.rect()), self._style.px(0.45), colours.code, colours.line)
            painter.end()
