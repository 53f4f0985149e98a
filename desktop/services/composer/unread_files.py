"""Files that were still being read when the program ended: they are read again when their chat is opened."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Slot

from desktop.services.composer.attachments import AttachmentService
from desktop.services.session.chat_session import ChatSession

__all__ = ["UnreadFiles"]


class UnreadFiles(QObject):
    """Notes in the preferences which files `attachments` is reading for each chat, those of temporary chats
    left out. What has been read by the end is in the draft, so that no file is attached twice.
    """

    def __init__(
        self, session: ChatSession, attachments: AttachmentService, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences, self._attachments = session.preferences, attachments
        self._left = self._preferences.unread_files
        attachments.reading.connect(self._note)
        session.conversation_changed.connect(self._read)

    def close(self) -> None:
        """Leave what is noted as it is."""
        self._attachments.reading.disconnect(self._note)

    @Slot(int)
    def _note(self, _count: int) -> None:
        noted = dict(self._left)
        for conversation, paths in self._attachments.unread().items():
            if conversation and paths:
                noted[conversation] = (*noted.get(conversation, ()), *paths)
        if noted != self._preferences.unread_files:
            self._preferences.note_unread_files(noted)

    @Slot(int)
    def _read(self, conversation: int) -> None:
        paths = self._left.pop(conversation, ())
        if paths:
            known = frozenset(held.attachment.name for held in self._attachments.held(conversation))
            self._attachments.read([Path(path) for path in paths], conversation, known)
