"""Links of a conversation: shown whole and opened outside the program only after the reader agreed."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox, QWidget

__all__ = ["LinkDialog", "allowed"]

_SCHEMES = ("http", "https", "mailto")


def allowed(address: str) -> bool:
    """Whether the address leads to the web or to a mail program: a file or a program of this machine is
    never opened.
    """
    return QUrl(address).scheme().lower() in _SCHEMES


class LinkDialog(QMessageBox):
    """Asks before a link is opened; not modal to the program's own loop."""

    def __init__(self, parent: QWidget, address: str) -> None:
        super().__init__(parent)
        self._address = address
        self.setObjectName("linkDialog")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setInformativeText(address if len(address) <= 600 else address[:600] + "…")
        if allowed(address):
            self.setIcon(QMessageBox.Icon.Question)
            self.setText("Open this link outside Inglenook?")
            self.addButton("Open", QMessageBox.ButtonRole.AcceptRole).clicked.connect(self._open)
            self.setDefaultButton(self.addButton(QMessageBox.StandardButton.Cancel))
        else:
            self.setIcon(QMessageBox.Icon.Information)
            self.setText("Only web and mail links are opened. This one is neither.")
            self.addButton(QMessageBox.StandardButton.Close)

    @classmethod
    def ask(cls, parent: QWidget, address: str) -> None:
        """Show the question."""
        cls(parent, address).open()

    def _open(self) -> None:
        QDesktopServices.openUrl(QUrl(self._address))
