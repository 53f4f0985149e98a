"""The queued messages above the composer, one line each."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from desktop.store.attachments.message_format import split
from desktop.store.conversations.queue import Queued
from desktop.views.layout.fill import fill
from desktop.views.widgets.elided_label import ElidedLabel
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["QueueList"]


class QueueList(QWidget):
    """Emits `edited(number)`, `removed(number)` and `sent(number)`; `left()` when the row that had the
    keyboard is gone: Qt would give it to any button of the window.
    """

    edited = Signal(int)
    removed = Signal(int)
    sent = Signal(int)
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 4)
        self._column.setSpacing(4)
        self.title = text_label(tone="muted", wraps=True)
        self._column.addWidget(self.title)
        self.rows: list[_Row] = []
        self.hide()

    def show_waiting(self, all_waiting: Sequence[Queued], held: bool, until: str = "") -> None:
        """Show these messages, which are sent when `until` says; `held` ones wait for the user."""
        focused = self._focused()
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        count = len(all_waiting)
        self.title.setText(
            ngettext("{n} queued message", "{n} queued messages", count)
            if held
            else until or _("Sent when the reply is complete")
        )
        self.rows = [_Row(waiting, sendable=held and place == 0) for place, waiting in enumerate(all_waiting)]
        for row in self.rows:
            self._column.addWidget(row)
            row.edit.clicked.connect(lambda _checked=False, number=row.number: self.edited.emit(number))
            row.remove.clicked.connect(lambda _checked=False, number=row.number: self.removed.emit(number))
            row.send.clicked.connect(lambda _checked=False, number=row.number: self.sent.emit(number))
            row.show()
        self.setVisible(bool(self.rows))
        if focused is not None:
            self._focus_again(*focused)

    def _focused(self) -> tuple[int, str] | None:
        """The message and the button that has the keyboard."""
        buttons = ((row, name) for row in self.rows for name in ("send", "edit", "remove"))
        return next(((row.number, name) for row, name in buttons if getattr(row, name).hasFocus()), None)

    def _focus_again(self, number: int, name: str) -> None:
        row = next((row for row in self.rows if row.number == number), None)
        if row is None or getattr(row, name).isHidden():
            self.left.emit()
        else:
            getattr(row, name).setFocus()


class _Row(QFrame):
    def __init__(self, waiting: Queued, sendable: bool) -> None:
        super().__init__()
        self.setObjectName("queueRow")
        self.number = waiting.id
        files, place = split(waiting.text)
        own = " ".join(waiting.text[place:].split())
        names = ", ".join(attachment.name for _unused, attachment in files)
        words = own if not names else f"{own} ({names})" if own else names
        self.text = ElidedLabel(words, _("Queued message"))
        self.send = QPushButton(_("Send"))
        self.send.setToolTip(_("Send this message now"))
        self.edit = IconButton("edit", _("Edit the queued message"))
        self.remove = IconButton("close", _("Remove the queued message"))
        row = fill(QHBoxLayout(self), (self.text, 1), self.send, margins=(10, 2, 4, 2), spacing=2)
        self.send.setVisible(sendable)  # Only now: without a parent it would be a window for a moment.
        row.addWidget(self.edit)
        row.addWidget(self.remove)
