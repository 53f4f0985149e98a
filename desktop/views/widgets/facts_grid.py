"""Titles and the values beside them, or below them where there is no room for two columns."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

__all__ = ["FactsGrid"]

_CHARACTERS = 40
"""In fewer average characters than this, each value is below its title."""


class FactsGrid(QWidget):
    """`shares` of the width for the titles and for the values; `gaps` are the pixels between columns and
    between rows.
    """

    def __init__(self, shares: tuple[int, int] = (0, 1), gaps: tuple[int, int] = (14, 4)) -> None:
        super().__init__()
        self._shares = shares
        self.pairs: list[tuple[QLabel, QLabel]] = []
        self._narrow = False
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(gaps[0])
        self._grid.setVerticalSpacing(gaps[1])

    def add(self, title: QLabel, value: QLabel) -> None:
        """Add a row."""
        self.pairs.append((title, value))
        self._put(len(self.pairs) - 1)

    def clear(self) -> None:
        """Remove all rows."""
        for label in (label for pair in self.pairs for label in pair):
            self._grid.removeWidget(label)
            label.hide()
            label.deleteLater()
        self.pairs = []

    def _put(self, row: int) -> None:
        title, value = self.pairs[row]
        top = Qt.AlignmentFlag.AlignTop
        if self._narrow:
            self._grid.addWidget(title, 2 * row, 0, 1, 2, top)
            self._grid.addWidget(value, 2 * row + 1, 0, 1, 2, top)
        else:
            self._grid.addWidget(title, 2 * row, 0, top)
            self._grid.addWidget(value, 2 * row, 1, top)

    def _arrange(self) -> None:
        narrow = self.width() < self.fontMetrics().averageCharWidth() * _CHARACTERS
        for column, share in enumerate((1, 0) if narrow else self._shares):
            self._grid.setColumnStretch(column, share)
        if narrow == self._narrow:
            return
        self._narrow = narrow
        for row, pair in enumerate(self.pairs):
            for label in pair:
                self._grid.removeWidget(label)
            self._put(row)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "_grid"):
            self._arrange()

    def minimumSizeHint(self) -> QSize:
        """As narrow as the widest word, whether values are beside or below."""
        widest = max((label.minimumSizeHint().width() for pair in self.pairs for label in pair), default=0)
        return QSize(widest, super().minimumSizeHint().height())
