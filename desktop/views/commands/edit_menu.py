"""Undo, cut, copy, paste and select all: they act on the text box, the list (select all only) or the
conversation that has the focus.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
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
from engine.words import _

__all__ = ["EDITING", "EditMenu"]

EDITING = ("cut", "copy", "paste", "select_all")
TextBox = QLineEdit | QPlainTextEdit | QTextEdit


class EditMenu(QObject):
    """Serves one window. Where no typing can be undone, `undo` reverts the last change to the chats."""

    def __init__(self, window: QWidget, transcript: TranscriptView, undo: Callable[[], object]) -> None:
        super().__init__(window)
        self._window, self._transcript, self._undo_change = window, transcript, undo
        self._last: QWidget | None = None
        QApplication.instance().focusChanged.connect(self._note)  # type: ignore[union-attr]

    def _note(self, _old: QWidget | None, new: QWidget | None) -> None:
        """Remember the focused widget; a menu that takes the focus acts on it."""
        if new is None or isinstance(new, (QMenu, QMenuBar)):
            return
        if self._last is not None and isValid(self._last):
            self._last.removeEventFilter(self)
        self._last = new if self._window.isAncestorOf(new) else None
        if self._last is not None:
            self._last.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Text boxes claim Ctrl+Z; one in which nothing was typed leaves it to the window."""
        if (
            isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride
            and event.matches(QKeySequence.StandardKey.Undo) and not self._has_history()
        ):  # fmt: skip
            event.ignore()
            return True
        return super().eventFilter(watched, event)

    def _has_history(self) -> bool:
        """Whether something was typed in the text box, undone or not: Ctrl+Z is meant for it."""
        box = self._box()
        if box is None or box.isReadOnly():
            return False
        text = box if isinstance(box, QLineEdit) else box.document()
        return text.isUndoAvailable() or text.isRedoAvailable()

    def _box(self) -> TextBox | None:
        """The text box that has the focus."""
        widget = self._last if self._last is not None and isValid(self._last) else None
        if isinstance(widget, QAbstractSpinBox):
            return widget.findChild(QLineEdit)
        return widget if isinstance(widget, (QLineEdit, QPlainTextEdit, QTextEdit)) else None

    def _list(self) -> QAbstractItemView | None:
        """The list that has the focus, if several of its rows can be selected."""
        widget = self._last if self._last is not None and isValid(self._last) else None
        several = (
            QAbstractItemView.SelectionMode.ExtendedSelection,
            QAbstractItemView.SelectionMode.MultiSelection,
        )
        return widget if isinstance(widget, QAbstractItemView) and widget.selectionMode() in several else None

    def can_undo_text(self) -> bool:
        """Whether typing can be undone in the text box."""
        box = self._box()
        if box is None or box.isReadOnly():
            return False
        return box.isUndoAvailable() if isinstance(box, QLineEdit) else box.document().isUndoAvailable()

    def undo(self) -> None:
        """Undo typing, else the last change."""
        box = self._box()
        if box is not None and self.can_undo_text():
            box.undo()
        else:
            self._undo_change()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands of the Edit menu that act on text."""
        return {"undo": self.undo, **{name: partial(self.do, name) for name in EDITING}}

    def why_not(self, name: str) -> str:
        """Why one of `EDITING` cannot be done now; "" if it can."""
        box = self._box()
        if name in ("cut", "paste") and (box is None or box.isReadOnly()):
            return _("Click in a text box first: only text in a text box can be changed.")
        if name == "paste":
            held = QGuiApplication.clipboard().mimeData()  # None while the system has none
            return "" if held is not None and held.formats() else _("The clipboard is empty.")
        if name in ("cut", "copy"):
            return (
                ""
                if self._selected(box) or (name == "copy" and self._transcript.selection.text())
                else _("Nothing is selected.")
            )
        return ""

    @staticmethod
    def _selected(box: TextBox | None) -> bool:
        if box is None:
            return False
        return box.hasSelectedText() if isinstance(box, QLineEdit) else box.textCursor().hasSelection()

    def do(self, name: str) -> None:
        """Do one of `EDITING`, if it can be done."""
        if self.why_not(name):
            return
        box, rows = self._box(), self._list()
        if name == "select_all" and rows is not None:
            rows.selectAll()
            return
        if box is None or (name == "copy" and not self._selected(box)):
            target: TranscriptView | TextBox = self._transcript
        else:
            target = box
        if isinstance(target, TranscriptView):
            target.copy() if name == "copy" else target.select_all()
        else:
            {"cut": target.cut, "copy": target.copy, "paste": target.paste, "select_all": target.selectAll}[
                name
            ]()
