"""The window of the model library: the models on this computer, and those of the hub."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QLabel, QTabWidget, QVBoxLayout, QWidget

from desktop.items.models.library import LibraryModel
from desktop.services.models.fit_estimates import LibraryService
from desktop.services.models.hub import HubService
from desktop.services.session.chat_session import ChatSession
from desktop.views.models.hub_page import HubPage
from desktop.views.models.library_page import LibraryPage

__all__ = ["LibraryWindow"]


class LibraryWindow(QDialog):
    """Two pages, and a line for errors; it leaves the chat usable."""

    def __init__(
        self, session: ChatSession, library: LibraryService, hub: HubService, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._library = library
        self.setWindowTitle("Model library")
        self.setWindowFlag(Qt.WindowType.WindowMaximizeButtonHint)
        self.models = LibraryModel(self)
        self.local, self.hub = LibraryPage(session, self.models), HubPage(hub)
        self.trouble = QLabel()
        self.trouble.setProperty("tone", "danger")
        self.trouble.setWordWrap(True)
        self.trouble.setTextFormat(Qt.TextFormat.PlainText)
        self.trouble.setContentsMargins(14, 0, 14, 8)
        self.trouble.hide()
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.local, "On this computer")
        self.tabs.addTab(self.hub, "Get models")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 6, 0, 4)
        layout.addWidget(self.tabs)
        layout.addWidget(self.trouble)
        self.resize(min(1180, max(560, parent.width() - 60)), min(760, max(420, parent.height() - 60)))

    def show_notice(self, sentence: str) -> None:
        """Show an error; "" hides it."""
        self.trouble.setText(sentence)
        self.trouble.setVisible(bool(sentence))

    def showEvent(self, event: QShowEvent) -> None:
        """Estimate how the models fit while they are visible."""
        super().showEvent(event)
        self._library.set_active(True)
        self.local.search()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop the estimates."""
        super().hideEvent(event)
        self._library.set_active(False)
