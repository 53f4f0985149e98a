"""One line of text that is cut where there is no room for it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from desktop.views.layout.bidi import isolated

__all__ = ["ElidedLabel"]

_TIP_CHARACTERS = 400


class ElidedLabel(QWidget):
    """Shows `words`, whole as its tool tip; `about` is put before them for screen readers. `bold` has the
    weight of a heading.
    """

    def __init__(self, words: str = "", about: str = "", bold: bool = False) -> None:
        super().__init__()
        self._about, self._bold = about, bold
        self.words = ""
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.show_words(words)

    def show_words(self, words: str) -> None:
        """Show another text."""
        self.words = words
        shown = words[:_TIP_CHARACTERS]
        self.setAccessibleName(f"{self._about}: {shown}" if self._about else shown)
        self.setToolTip(shown)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height() + 6)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        font = self.font()
        if self._bold:
            font.setWeight(font.Weight.DemiBold)
        painter.setFont(font)
        words = painter.fontMetrics().elidedText(self.words, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(
            self.rect(), int(Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignVCenter), isolated(words)
        )
        painter.end()
