"""Where the user writes: a box that grows, Enter that sends (never while an input method composes), a draft for each chat."""

from __future__ import annotations

import math
from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDragMoveEvent,
    QFocusEvent,
    QFontMetricsF,
    QInputMethodEvent,
    QKeyEvent,
    QPalette,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from desktop.views.icons import IconButton

__all__ = ["Composer"]

COLUMN_WIDTH = 860
_MOST_LINES = 9


class _TextBox(QPlainTextEdit):
    """The text edit: grows with its text up to `_MOST_LINES` lines; emits `send` for the key that sends."""

    send = Signal()
    focus_changed = Signal(bool)
    previous_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.send_with = "enter"
        self._composing = False
        self.setObjectName("composerText")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(4)
        self.textChanged.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        """Take the height of the text, one to `_MOST_LINES` lines."""
        lines = min(max(1, int(self.document().size().height())), _MOST_LINES)
        margins = 2 * math.ceil(self.document().documentMargin()) + 2
        self.setFixedHeight(math.ceil(QFontMetricsF(self.font()).lineSpacing() * lines) + margins)
        full = int(self.document().size().height()) > _MOST_LINES
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded if full else Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self.fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.fit()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._composing = False
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Up and not self.toPlainText() and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            self.previous_wanted.emit()
            return
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or self._composing:
            super().keyPressEvent(event)
            return
        held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        control = held == Qt.KeyboardModifier.ControlModifier
        if control or (held == Qt.KeyboardModifier.NoModifier and self.send_with == "enter"):
            self.send.emit()
        elif held in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier):
            self.textCursor().insertBlock()  # a real line break; Qt's own Shift+Enter makes U+2028
            self.ensureCursorVisible()
        else:
            event.ignore()

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() and not source.hasUrls()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste the text as it is, without styles."""
        self.insertPlainText(source.text())

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Files are for the window."""
        if event.mimeData().hasUrls():
            event.ignore()
        else:
            super().dragEnterEvent(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        if event.mimeData().hasUrls():
            event.ignore()
        else:
            super().dragMoveEvent(event)


class Composer(QWidget):
    """The box and its one button: Send, or Stop while a reply is written.

    `submitted(text)` asks to send; the text stays in the box until the owner calls `accept()`, so that a refused message
    is not lost. `stop_requested()` asks to stop; `previous_wanted()` is the Up key in an empty box.
    `left(conversation, text)` before another chat's text is shown, which is that of `recall(conversation)` the first time.
    """

    submitted = Signal(str)
    stop_requested = Signal()
    previous_wanted = Signal()
    left = Signal(int, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._answering = False
        self.recall: Callable[[int], str] = lambda conversation: ""
        self._drafts: dict[int | None, str] = {}
        self._conversation: int | None = None
        self.box = _TextBox()
        self.box.setAccessibleName("Message")
        self.button = IconButton("send", "Send message", role=QPalette.ColorRole.HighlightedText)
        self.button.setObjectName("send")
        self.button.setIconSize(QSize(20, 20))
        self._frame = QFrame()
        self._frame.setObjectName("composerBox")
        self._frame.setMaximumWidth(COLUMN_WIDTH)
        inside = QHBoxLayout(self._frame)
        inside.setContentsMargins(12, 8, 8, 8)
        inside.setSpacing(8)
        inside.addWidget(self.box, 1, Qt.AlignmentFlag.AlignVCenter)
        inside.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        outside = QVBoxLayout(self)
        outside.setContentsMargins(14, 6, 14, 4)
        centre = QHBoxLayout()
        centre.addStretch(1)
        centre.addWidget(self._frame, 1000)
        centre.addStretch(1)
        outside.addLayout(centre)
        self.setFocusProxy(self.box)
        self.box.send.connect(self._send)
        self.box.previous_wanted.connect(self.previous_wanted)
        self.box.focus_changed.connect(self._show_focus)
        self.box.textChanged.connect(self._show_state)
        self.button.clicked.connect(self._pressed)
        self.set_send_with("enter")

    def text(self) -> str:
        """What is written now."""
        return self.box.toPlainText()

    def set_text(self, text: str) -> None:
        """Write `text` and put the cursor behind it."""
        self.box.setPlainText(text)
        self.box.moveCursor(self.box.textCursor().MoveOperation.End)

    def accept(self) -> None:
        """The message was taken: empty the box."""
        self.box.clear()

    def set_answering(self, answering: bool) -> None:
        """Show Stop in place of Send while a reply is written."""
        self._answering = answering
        self._show_state()

    def set_send_with(self, key: str) -> None:
        """ "enter" sends with Enter and breaks lines with Shift+Enter; "ctrl+enter" sends with Ctrl+Enter only."""
        self.box.send_with = key
        self.box.setPlaceholderText("Write a message" if key == "enter" else "Write a message, Ctrl+Enter sends")
        self.box.setAccessibleDescription(
            "Enter sends, Shift and Enter makes a new line." if key == "enter" else "Control and Enter sends, Enter makes a new line."
        )
        self._show_state()

    def switch_conversation(self, conversation: int | None) -> None:
        """Keep the text of the chat that was open and bring back the one of `conversation`."""
        if conversation == self._conversation:
            return
        if self.text():
            self._drafts[self._conversation] = self.text()
        self.left.emit(self.conversation, self.text())
        self._conversation = conversation
        self.set_text(self._drafts.pop(conversation, "") or self.recall(conversation or 0))

    @property
    def conversation(self) -> int:
        """The chat whose text is shown; 0 before there is one."""
        return self._conversation or 0

    def _send(self) -> None:
        if not self._answering and self.text().strip():
            self.submitted.emit(self.text())

    def _pressed(self) -> None:
        if self._answering:
            self.stop_requested.emit()
        else:
            self._send()
        self.box.setFocus()

    def _show_state(self) -> None:
        if self._answering:
            self.button.set_face("stop", "Stop the reply", "Stop (Esc)")
        else:
            self.button.set_face("send", "Send message", "Send (Enter)" if self.box.send_with == "enter" else "Send (Ctrl+Enter)")
        self.button.setEnabled(self._answering or bool(self.text().strip()))

    def _show_focus(self, focused: bool) -> None:
        self._frame.setProperty("focused", focused)
        self._frame.style().unpolish(self._frame)
        self._frame.style().polish(self._frame)
