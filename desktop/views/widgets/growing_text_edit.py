"""A box for text of several lines that grows with what is in it: the system prompt, patterns, lists of
texts.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QMimeData, QRect, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QKeyEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QPlainTextEdit

__all__ = ["GrowingTextEdit", "code_font"]

_PAUSE_MILLISECONDS = 600


def code_font() -> QFont:
    """The system's fixed font without a size: a widget that has it follows the size of all text."""
    font = QFont()
    font.setFamilies(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).families())
    return font


class GrowingTextEdit(QPlainTextEdit):
    """`least` to `most` lines high.

    `typed(text)` at every change by the user; `edited(text)` when the user pauses or leaves.
    """

    typed = Signal(str)
    edited = Signal(str)

    def __init__(self, name: str, *, least: int = 2, most: int = 10) -> None:
        super().__init__()
        self._least, self._most = least, most
        self._told = ""
        self._showing = False
        self._fitting = False
        self.setProperty("tone", "field")
        self.setAccessibleName(name)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_PAUSE_MILLISECONDS)
        self._timer.timeout.connect(self.tell)
        self.textChanged.connect(self._on_text)
        self.fit()

    def use_code_font(self) -> None:
        """Show the text in the system's fixed font."""
        self.setFont(code_font())

    def text(self) -> str:
        """What is in the box; unlike `toPlainText` it keeps no-break spaces."""
        return self.document().toRawText().replace("\u2029", "\n").replace("\u2028", "\n")

    def show_text(self, text: str) -> None:
        """Show `text`; neither signal is emitted."""
        self._told = text
        if text != self.text():
            self._showing = True
            self.setPlainText(text)
            self._showing = False
        self._timer.stop()

    def replace_text(self, text: str) -> None:
        """Put `text` in the place of all that is there, as if the user had typed it: undoable, and told."""
        cursor = self.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(text)
        self.setFocus()
        self.tell()

    def tell(self) -> None:
        """Emit `edited` when the text is another than the last one told or shown."""
        self._timer.stop()
        if self.text() != self._told:
            self._told = self.text()
            self.edited.emit(self._told)

    def fit(self) -> None:
        """Take the height of the text within the bounds."""
        if self._fitting:
            return
        self._fitting = True
        wanted = max(int(self.document().size().height()), self._placeholder_lines())
        lines = min(max(self._least, wanted), self._most)
        frame = 2 * math.ceil(self.document().documentMargin()) + 10
        self.setFixedHeight(math.ceil(QFontMetricsF(self.font()).lineSpacing() * lines) + frame)
        full = wanted > self._most
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAsNeeded if full else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        self._fitting = False

    def setPlaceholderText(self, text: str) -> None:
        super().setPlaceholderText(text)
        self.fit()

    def _placeholder_lines(self) -> int:
        """Lines of the placeholder while it is what is seen, those that wrapping makes included."""
        if not self.document().isEmpty() or not self.placeholderText():
            return 0
        metrics = self.fontMetrics()
        width = max(1, self.viewport().width() - 2 * math.ceil(self.document().documentMargin()))
        wrapped = metrics.boundingRect(
            QRect(0, 0, width, 1 << 20), int(Qt.TextFlag.TextWordWrap), self.placeholderText()
        )
        return math.ceil(wrapped.height() / max(1, metrics.lineSpacing()))

    def _on_text(self) -> None:
        self.fit()
        if not self._showing:
            self._timer.start()
            self.typed.emit(self.text())

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.tell()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and event.modifiers() == Qt.KeyboardModifier.ShiftModifier
        ):
            self.textCursor().insertBlock()  # a real line break; Qt's own Shift+Enter makes U+2028
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste the text as it is, without styles."""
        self.insertPlainText(source.text())

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the pane, unless this box has the focus and more text than fits."""
        if self.hasFocus() and self.verticalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff:
            super().wheelEvent(event)
        else:
            event.ignore()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self.fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "_timer"):
            self.fit()
