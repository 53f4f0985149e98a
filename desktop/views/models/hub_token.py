"""The line for the hub's token, which is kept in the system's keyring and never shown again."""

from __future__ import annotations

from PySide6.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget

from desktop.services.models.hub import HubService
from desktop.views.layout.fill import fill
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["TokenLine"]

_PLACES = {
    "": N_("No token is saved. Most models do not need one."), "keyring": (
        N_("The token is saved in the system's keyring.")
    ),
    "this run": N_("The token is kept until you quit Inglenook."),
    "file": N_("The token saved by the Hugging Face tools is used."),
}  # fmt: skip


class TokenLine(QWidget):
    """A field for a token, and where the present one is stored."""

    def __init__(self, service: HubService, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._service = service
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText(_("Token for private and gated models"))
        self.field.setAccessibleName(_("Hugging Face token"))
        self.save, self.remove = QPushButton(_("Save")), QPushButton(_("Delete"))
        self.save.setAccessibleName(_("Save token"))
        self.remove.setAccessibleName(_("Delete token"))
        self.where = text_label(tone="muted", wraps=True, plain=True)
        line = fill(FlowLayout(), (self.field, 1), self.save, self.remove)
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
        place = translate(
            _PLACES.get(source, N_("The token in the environment variable {source} is used.")), source=source
        )
        self.where.setText(f"{sentence} {place}".strip())
        self.remove.setVisible(source in ("keyring", "this run"))

    def _keep(self) -> None:
        token = self.field.text().strip()
        if token:
            self.field.clear()
            self._service.set_token(token)
