"""Links of a conversation: footnotes are scrolled to, other addresses are shown whole and opened outside the
program only after the reader agreed.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox, QWidget

from desktop.views.dialogs.message_box import MessageBox
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.rendering.footnotes import note_row
from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.rows import Row
from desktop.views.transcript.scrolling import Scrolling
from engine.words import _

__all__ = ["LinkDialog", "allowed", "follow_link", "link_words"]

_SCHEMES = ("http", "https", "mailto")


def follow_link(parts: TranscriptParts, scrolling: Scrolling, row: Row, address: str) -> None:
    """Scroll to a footnote of the row's message, or ask whether to open a link outside the program."""
    note = note_row(parts.messages.rows_of(row.item.id), address)
    if note is not None:
        scrolling.to_row(note, parts.area.viewport().height() // 3)
    elif not address.startswith(FOOTNOTE_SCHEME):
        LinkDialog.ask(parts.area, address)


def link_words(parts: TranscriptParts, row: Row, address: str) -> str:
    """What a link in `row` leads to: its address, or the text of a footnote."""
    note = note_row(parts.messages.rows_of(row.item.id), address)
    return note.text if note is not None else "" if address.startswith(FOOTNOTE_SCHEME) else address


def allowed(address: str) -> bool:
    """Whether the address leads to the web or to a mail program; files and programs of this machine are
    never opened.
    """
    return QUrl(address).scheme().lower() in _SCHEMES


class LinkDialog(MessageBox):
    """Asks before a link is opened, without blocking."""

    def __init__(self, parent: QWidget, address: str) -> None:
        super().__init__(parent)
        self._address = address
        self.setObjectName("linkDialog")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setInformativeText(address if len(address) <= 600 else address[:600] + "…")
        if allowed(address):
            self.setIcon(QMessageBox.Icon.Question)
            self.setText(_("Open this link outside Inglenook?"))
            self.addButton(_("Open"), QMessageBox.ButtonRole.AcceptRole).clicked.connect(self._open)
            self.setDefaultButton(self.addButton(QMessageBox.StandardButton.Cancel))
        else:
            self.setIcon(QMessageBox.Icon.Information)
            self.setText(_("This is not a web or email link, so it cannot be opened."))
            self.addButton(QMessageBox.StandardButton.Close)

    @classmethod
    def ask(cls, parent: QWidget, address: str) -> None:
        """Show the question."""
        cls(parent, address).open()

    def _open(self) -> None:
        QDesktopServices.openUrl(QUrl(self._address))
