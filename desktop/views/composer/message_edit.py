"""The box that a message is typed in: it grows, and reports pasted files and long texts."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDragMoveEvent,
    QFocusEvent,
    QImage,
    QKeyEvent,
    QTextDocumentFragment,
)
from PySide6.QtWidgets import QFrame, QMenu, QSizePolicy

from desktop.views.widgets.growing_text_edit import FittedTextEdit

__all__ = ["HUGE_PASTE", "LONGEST_RUN", "LONG_PASTE", "MessageEdit", "is_huge"]

LONG_PASTE = 2000
"""A pasted text of this many characters or more may be attached instead."""
HUGE_PASTE = 250_000
"""A pasted text of this many characters or more is not inserted: every key would take long after it."""
LONGEST_RUN = 20_000
"""Nor is one with as many letters and signs on end, such as a picture in base64: Qt breaks such a line within
25 ms for 20,000 of them, but within 2 s for 240,000, and again after each key.
"""
_RUN = re.compile(r"[!-~]+")
_MOST_LINES = 9


def is_huge(text: str) -> bool:
    """Whether a pasted text is too long for the box."""
    return len(text) >= HUGE_PASTE or (
        len(text) >= LONGEST_RUN and max(map(len, _RUN.findall(text)), default=0) >= LONGEST_RUN
    )


class MessageEdit(FittedTextEdit):
    """Grows with its text up to `_MOST_LINES` lines; emits `send` for the key that sends.

    `files_pasted(list of Path)`, `picture_pasted(QImage)` and, for a text that `is_huge`,
    `huge_pasted(str)` come instead of text; `long_pasted(str)` after a text of `LONG_PASTE` characters
    or more was inserted; `menu_opens(menu, position)` before the menu is shown, at a position of the text.
    """

    send = Signal()
    files_pasted = Signal(list)
    picture_pasted = Signal(QImage)
    long_pasted = Signal(str)
    huge_pasted = Signal(str)
    focus_changed = Signal(bool)
    previous_requested = Signal()
    menu_opens = Signal(QMenu, int)

    def __init__(self) -> None:
        super().__init__(least=1, most=_MOST_LINES, frame=2)
        self.send_with = "enter"
        self.setObjectName("composerText")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(4)
        self.fit()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.composing:
            super().keyPressEvent(event)
            return
        if (
            event.key() == Qt.Key.Key_Up
            and not self.toPlainText()
            and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        ):
            self.previous_requested.emit()
            return
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            super().keyPressEvent(event)
            return
        held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        control = held == Qt.KeyboardModifier.ControlModifier
        if control or (held == Qt.KeyboardModifier.NoModifier and self.send_with == "enter"):
            self.send.emit()
        elif held in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier):
            self.break_line()
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Show the usual menu, with what others add to it."""
        menu = self.createStandardContextMenu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        by_key = event.reason() is QContextMenuEvent.Reason.Keyboard
        cursor = self.textCursor() if by_key else self.cursorForPosition(event.pos())
        self.menu_opens.emit(menu, cursor.position())
        menu.popup(
            self.viewport().mapToGlobal(self.cursorRect().bottomLeft()) if by_key else event.globalPos()
        )

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or source.hasUrls() or source.hasImage() or source.hasHtml()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste plain text, also of a source that offers only HTML; files, and pictures without text, are
        reported instead.
        """
        urls = source.urls()
        if urls and all(url.isLocalFile() for url in urls):
            self.files_pasted.emit([Path(url.toLocalFile()) for url in urls])
            return
        text = source.text()
        if not text and source.hasImage():
            image = QImage(source.imageData())
            if not image.isNull():
                self.picture_pasted.emit(image)
            return
        if not text and len(html := source.html()) < HUGE_PASTE:
            text = QTextDocumentFragment.fromHtml(html).toPlainText()
        if is_huge(text):
            self.huge_pasted.emit(text)
            return
        self.insertPlainText(text)
        if len(text) >= LONG_PASTE:
            self.long_pasted.emit(text)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Leave files to the window."""
        if event.mimeData().hasUrls():
            event.ignore()
        else:
            super().dragEnterEvent(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        if event.mimeData().hasUrls():
            event.ignore()
        else:
            super().dragMoveEvent(event)
