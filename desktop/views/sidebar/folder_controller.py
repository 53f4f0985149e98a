"""Opens the window of a folder; the open chat follows its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.services.settings.folder_settings import FolderSettings
from desktop.services.settings.validation import ValidationService
from desktop.store.conversations.folders import Folder
from desktop.store.database.database import StoreError

if TYPE_CHECKING:
    from desktop.views.sidebar.folder_dialog import FolderDialog

__all__ = ["FolderController"]


class FolderController(QObject):
    """Emits `changed()` when a folder's name, prompt or settings changed."""

    changed = Signal()

    def __init__(self, session: ChatSession, validation: ValidationService, window: QWidget) -> None:
        super().__init__(window)
        self._session, self._validation, self._window = session, validation, window
        self.dialog: FolderDialog | None = None
        rows = session.conversations
        # A chat may have moved to another folder.
        for signal in (rows.dataChanged, rows.modelReset, rows.rowsMoved):
            signal.connect(self._follow)

    def open(self, folder_id: int) -> None:
        """Show the window of a folder instead of the one that is open."""
        self.close()
        session = self._session
        try:
            settings = FolderSettings(session.stores.database, session.preferences, folder_id)
        except StoreError as error:
            session.notice.emit(str(error), "error")
            return
        settings.saved.connect(self._saved)
        from desktop.views.sidebar.folder_dialog import FolderDialog  # Only when needed.

        self.dialog = FolderDialog(settings, self._validation, self._window)
        self.dialog.destroyed.connect(self._gone)
        self.dialog.show()

    def close(self) -> None:
        """Save pending changes and close the window."""
        if self.dialog is not None:
            dialog, self.dialog = self.dialog, None
            dialog.finish()
            dialog.destroyed.disconnect(self._gone)
            dialog.deleteLater()
            dialog.hide()

    def _follow(self) -> None:
        self._session.follow_place()

    def _saved(self, _folder: Folder) -> None:
        self._session.follow_place()
        self.changed.emit()

    def _gone(self) -> None:
        self.dialog = None
