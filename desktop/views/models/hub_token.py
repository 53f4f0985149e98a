"""The line for the hub's token, which is kept in the system's keyring and never shown again."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from desktop.services.models.hub import HubService
from desktop.views.layout.fill import fill
from desktop.views.widgets.text_label import text_label

__all__ = ["TokenLine"]

_PLACES = {
    "": "No token is saved. Most models do not need one.", "keyring": (
        "The token is saved in the system's keyring."
    ),
    "this run": "The token is kept until you quit Inglenook.",
    "file": "The token saved by the Hugging Face tools is used.",
}  # fmt: skip


class TokenLine(QWidget):
    """A field for a token, and where the present one is stored."""

    def __init__(self, service: HubService, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._service = service
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("Token for private and gated models")
        self.field.setAccessibleName("Hugging Face token")
        self.save, self.remove = QPushButton("Keep"), QPushButton("Forget")
        self.save.setAccessibleName("Save token")
        self.remove.setAccessibleName("Delete token")
        self.where = text_label(tone="muted", wraps=True, plain=True)
        line = fill(QHBoxLayout(), (self.field, 1), self.save, self.remove)
        fill(QVBoxLayout(self), line, self.where, margins=(0, 2, 0, 0), spacing=4)
        self.field.textChanged.connect(lambda text: self.save.setEnabled(bool(text.strip())))
        self.field.returnPressed.connect(self._keep)
        self.save.clicked.connect(self._keep)
        self.remove.clicked.connect(lambda: service.set_token(""))
        self.save.setEnabled(False)
        self.show_token("", "")
        service.token_changed.connect(self.show_token)

    def show_token(self, source: str, sentence: str) -> None:
        """Show where the token is stored; `sentence` says what went wrong."""
        place = _PLACES.get(source, f"The token in the environment variable {source} is used.")
        self.where.setText(f"{sentence} {place}".strip())
        self.remove.setVisible(source in ("keyring", "this run"))

    def _keep(self) -> None:
        token = self.field.text().strip()
        if token:
            self.field.clear()
            self._service.set_token(token)
