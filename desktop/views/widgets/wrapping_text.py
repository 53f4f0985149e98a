"""Buttons and check boxes whose text wraps; Qt's own would keep a narrow page as wide as their text."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QResizeEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import (
    QAbstractButton,
    QCheckBox,
    QPushButton,
    QSizePolicy,
    QStyle,
    QStyleOptionButton,
    QWidget,
)

__all__ = ["WrappingButton", "WrappingCheckBox", "wrapped_lines"]

# PySide6 crashes when a class has two bases made from one class of Qt
if TYPE_CHECKING:
    _Button = QAbstractButton
else:
    _Button = object

_SLACK = 4
"""Pixels for what a text is wider on the screen than its sum of advances."""


def wrapped_lines(words: str, font: QFont, width: int) -> str:
    """`words` with line breaks where `width` pixels need them."""
    if QFontMetrics(font).horizontalAdvance(words) <= width:
        return words
    layout = _broken(words, font, width)
    lines = [layout.lineAt(number) for number in range(layout.lineCount())]
    return "\n".join(words[each.textStart() :][: each.textLength()].strip() for each in lines)


def _broken(words: str, font: QFont, width: int) -> QTextLayout:
    """`words` in lines of at most `width` pixels, or of one word."""
    layout = QTextLayout(words, font)
    layout.setTextOption(QTextOption(Qt.AlignmentFlag.AlignLeft))
    layout.beginLayout()
    while (line := layout.createLine()).isValid():
        line.setLineWidth(max(1, width))
    layout.endLayout()
    return layout


class _Wraps(_Button):
    """Wraps its words to its width."""

    _words = ""

    def _beside(self) -> int:
        """The pixels that the frame takes beside the text."""
        shown = max(map(self.fontMetrics().horizontalAdvance, self.text().split("\n")))
        return super().sizeHint().width() - shown

    def _wrap(self) -> None:
        wrapped = wrapped_lines(self._words, self.font(), self.width() - self._beside())
        if self.text() != wrapped:
            self.setText(wrapped)

    def minimumSizeHint(self) -> QSize:
        """As wide as the longest word, or part of one that may stand alone in a line, as in Chinese."""
        longest = ceil(_broken(self._words, self.font(), 1).minimumWidth())
        return QSize(longest + self._beside(), super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._wrap()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and self._words:
            self._wrap()


class WrappingCheckBox(_Wraps, QCheckBox):
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

    def sizeHint(self) -> QSize:
        """As wide as the text on one line, as high as it is now."""
        widest = self.fontMetrics().horizontalAdvance(self._words) + self._beside()
        return QSize(max(widest, super().sizeHint().width()), super().sizeHint().height())


class WrappingButton(_Wraps, QPushButton):
    """A button with `words` on as many lines as its width needs."""

    def __init__(self, words: str, parent: QWidget | None = None) -> None:
        super().__init__(words, parent)
        self._words = words
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def set_words(self, words: str) -> None:
        """Show other words."""
        self._words = words
        self.setText(words)
        self._wrap()

    def sizeHint(self) -> QSize:
        """As wide as the text on one line, as high as it is now."""
        widest = self.fontMetrics().horizontalAdvance(self._words) + self._beside()
        return QSize(widest + _SLACK, super().sizeHint().height())
