"""A check box whose text wraps; Qt's own would keep a narrow pane as wide as its text."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import QCheckBox, QSizePolicy, QStyle, QStyleOptionButton, QWidget

__all__ = ["WrappingCheckBox"]


class WrappingCheckBox(QCheckBox):
    """A check box with `words` on as many lines as its width needs; they are also its accessible name."""

    def __init__(self, words: str, parent: QWidget | None = None) -> None:
        super().__init__(words, parent)
        self._words = words
        self.setAccessibleName(words)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def _beside(self) -> int:
        """The pixels that the box takes beside the text."""
        option = QStyleOptionButton()
        self.initStyleOption(option)
        text = self.style().subElementRect(QStyle.SubElement.SE_CheckBoxContents, option, self)
        return self.width() - text.width() + 2

    def _wrap(self) -> None:
        layout = QTextLayout(self._words, self.font())
        layout.setTextOption(QTextOption(Qt.AlignmentFlag.AlignLeft))
        layout.beginLayout()
        lines = []
        while (line := layout.createLine()).isValid():
            line.setLineWidth(max(1, self.width() - self._beside()))
            start, length = line.textStart(), line.textLength()
            lines.append(self._words[start : start + length].strip())
        layout.endLayout()
        if self.text() != (wrapped := "\n".join(lines)):
            self.setText(wrapped)

    def sizeHint(self) -> QSize:
        """As wide as the text on one line, as high as it is now."""
        widest = self.fontMetrics().horizontalAdvance(self._words) + self._beside()
        return QSize(max(widest, super().sizeHint().width()), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """As wide as the longest word."""
        longest = max(map(self.fontMetrics().horizontalAdvance, self._words.split()), default=0)
        return QSize(longest + self._beside(), super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._wrap()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "_words"):
            self._wrap()
