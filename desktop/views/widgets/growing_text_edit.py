"""Multi-line text boxes that grow with their content: the system prompt, patterns, lists of texts."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QMimeData, QRect, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QInputMethodEvent,
    QKeyEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QPlainTextEdit

from desktop.services.system.debounce import debounce

__all__ = ["FittedTextEdit", "GrowingTextEdit", "code_font"]

_PAUSE_MILLISECONDS = 600


def code_font() -> QFont:
    """The system's fixed-pitch font without a size, so that a widget with it follows the text size."""
    font = QFont()
    font.setFamilies(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).families())
    return font


class FittedTextEdit(QPlainTextEdit):
    """As high as its text: `least` to `most` lines, and `frame` pixels around them."""

    def __init__(self, least: int, most: int, frame: int) -> None:
        super().__init__()
        self._least, self._most, self._frame = least, most, frame
        self._fitting = self._composing = False
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.textChanged.connect(self.fit)

    @property
    def composing(self) -> bool:
        """Whether an input method is composing a word: its keys, such as Enter and Up, choose among words."""
        return self._composing

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._composing = False
        super().focusOutEvent(event)

    def fit(self) -> None:
        """Adapt the height to the text, within the limits."""
        if self._fitting:
            return
        self._fitting = True
        needed = self.lines()
        lines = min(max(self._least, needed), self._most)
        frame = 2 * math.ceil(self.document().documentMargin()) + self._frame
        self.setFixedHeight(math.ceil(QFontMetricsF(self.font()).lineSpacing() * lines) + frame)
        full = needed > self._most
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAsNeeded if full else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        self._fitting = False

    def lines(self) -> int:
        """Lines of text after wrapping."""
        return int(self.document().size().height())

    def break_line(self) -> None:
        """Insert a real line break; Qt's own Shift+Enter inserts U+2028."""
        self.textCursor().insertBlock()
        self.ensureCursorVisible()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste plain text."""
        self.insertPlainText(source.text())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self.fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "_fitting"):
            self.fit()


class GrowingTextEdit(FittedTextEdit):
    """A field of a form.

    `typed(text)` at every change by the user; `edited(text)` when the user pauses or leaves.
    """

    typed = Signal(str)
    edited = Signal(str)

    def __init__(self, name: str, *, least: int = 2, most: int = 10) -> None:
        super().__init__(least, most, frame=10)
        self._committed = ""
        self._showing = False
        self.setProperty("tone", "field")
        self.setAccessibleName(name)
        self._timer = debounce(self, self.commit, _PAUSE_MILLISECONDS)
        self.textChanged.connect(self._on_text)
        self.fit()

    def use_code_font(self) -> None:
        """Show the text in the system's fixed-pitch font."""
        self.setFont(code_font())

    def text(self) -> str:
        """The content; unlike `toPlainText` it keeps no-break spaces."""
        return self.document().toRawText().replace("\u2029", "\n").replace("\u2028", "\n")

    def show_text(self, text: str) -> None:
        """Show `text`; neither signal is emitted."""
        self._committed = text
        if text != self.text():
            self._showing = True
            self.setPlainText(text)
            self._showing = False
        self._timer.stop()

    def replace_text(self, text: str) -> None:
        """Replace all text as if the user had typed `text`: it can be undone, and `edited` is emitted."""
        cursor = self.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(text)
        self.setFocus()
        self.commit()

    def commit(self) -> None:
        """Emit `edited` when the text differs from the last one committed or shown."""
        self._timer.stop()
        if self.text() != self._committed:
            self._committed = self.text()
            self.edited.emit(self._committed)

    def lines(self) -> int:
        """Lines of text, or of the placeholder while it shows."""
        if not self.document().isEmpty() or not self.placeholderText():
            return super().lines()
        metrics = self.fontMetrics()
        width = max(1, self.viewport().width() - 2 * math.ceil(self.document().documentMargin()))
        wrapped = metrics.boundingRect(
            QRect(0, 0, width, 1 << 20), int(Qt.TextFlag.TextWordWrap), self.placeholderText()
        )
        return max(super().lines(), math.ceil(wrapped.height() / max(1, metrics.lineSpacing())))

    def setPlaceholderText(self, text: str) -> None:
        super().setPlaceholderText(text)
        self.fit()

    def _on_text(self) -> None:
        if not self._showing:
            self._timer.start()
            self.typed.emit(self.text())

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.commit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and event.modifiers() == Qt.KeyboardModifier.ShiftModifier
        ):
            self.break_line()
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the pane, unless this box has the focus and more text than fits."""
        if self.hasFocus() and self.verticalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff:
            super().wheelEvent(event)
        else:
            event.ignore()
