"""Undo, cut, copy, paste and select all of the Edit menu: they act on the text box, or the conversation,
that has the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QLineEdit,
    QMenu,
    QMenuBar,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)
from shiboken6 import isValid

from desktop.views.transcript import TranscriptView

__all__ = ["EditMenu"]

GrowingTextEdit = QLineEdit | QPlainTextEdit | QTextEdit


class EditMenu(QObject):
    """Serves one window.

    `undo` takes back what was done to chats and messages, when no text can be undone.
    """

    def __init__(self, window: QWidget, transcript: TranscriptView, undo: Callable[[], object]) -> None:
        super().__init__(window)
        self._window, self._transcript, self._undo_deed = window, transcript, undo
        self._last: QWidget | None = None
        QApplication.instance().focusChanged.connect(self._note)  # type: ignore[union-attr]

    def _note(self, _old: QWidget | None, new: QWidget | None) -> None:
        """Opening a menu by keyboard takes the focus, but not what the menu acts on."""
        if new is None or isinstance(new, (QMenu, QMenuBar)):
            return
        if self._last is not None and isValid(self._last):
            self._last.removeEventFilter(self)
        self._last = new if self._window.isAncestorOf(new) else None
        if self._last is not None:
            self._last.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Text boxes claim Ctrl+Z. One in which nothing was written leaves it to the window."""
        if (
            isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride
            and event.matches(QKeySequence.StandardKey.Undo) and not self._has_history()
        ):  # fmt: skip
            event.ignore()
            return True
        return super().eventFilter(watched, event)

    def _has_history(self) -> bool:
        """Whether something was written in the text box, even if it was taken back: Ctrl+Z is meant for
        it.
        """
        box = self._box()
        if box is None or box.isReadOnly():
            return False
        text = box if isinstance(box, QLineEdit) else box.document()
        return text.isUndoAvailable() or text.isRedoAvailable()

    def _box(self) -> GrowingTextEdit | None:
        """The text box that has the keyboard."""
        widget = self._last if self._last is not None and isValid(self._last) else None
        if isinstance(widget, QAbstractSpinBox):
            return widget.findChild(QLineEdit)
        return widget if isinstance(widget, (QLineEdit, QPlainTextEdit, QTextEdit)) else None

    def can_undo_text(self) -> bool:
        """Whether the text box has something to take back."""
        box = self._box()
        if box is None or box.isReadOnly():
            return False
        return box.isUndoAvailable() if isinstance(box, QLineEdit) else box.document().isUndoAvailable()

    def undo(self) -> None:
        """Take back typing, else the last deed."""
        box = self._box()
        if box is not None and self.can_undo_text():
            box.undo()
        else:
            self._undo_deed()

    def trouble(self, deed: str) -> str:
        """Why "cut", "copy", "paste" or "select_all" cannot be done now; "" when it can."""
        box = self._box()
        if deed in ("cut", "paste") and (box is None or box.isReadOnly()):
            return "Only the text of a text box can be changed: click into one first."
        if deed == "paste":
            held = QGuiApplication.clipboard().mimeData()  # None where the system has none at the moment
            return "" if held is not None and held.formats() else "The clipboard is empty."
        if deed in ("cut", "copy"):
            return (
                ""
                if self._selected(box) or (deed == "copy" and self._transcript.selection.text())
                else "Nothing is selected."
            )
        return ""

    @staticmethod
    def _selected(box: GrowingTextEdit | None) -> bool:
        if box is None:
            return False
        return box.hasSelectedText() if isinstance(box, QLineEdit) else box.textCursor().hasSelection()

    def do(self, deed: str) -> None:
        """ "cut", "copy", "paste" or "select_all"; nothing when that cannot be done."""
        if self.trouble(deed):
            return
        box = self._box()
        if box is None or (deed == "copy" and not self._selected(box)):
            target: TranscriptView | GrowingTextEdit = self._transcript
        else:
            target = box
        if isinstance(target, TranscriptView):
            target.copy() if deed == "copy" else target.select_all()
        else:
            {"cut": target.cut, "copy": target.copy, "paste": target.paste, "select_all": target.selectAll}[
                deed
            ]()
