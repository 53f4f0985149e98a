"""Finding words in versions of the open chat that are not shown, and going to them."""

from __future__ import annotations

from PySide6.QtCore import QObject

from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.hidden_texts import HiddenText, hidden_texts
from desktop.store.database.database import StoreError
from desktop.views.transcript import TranscriptView

__all__ = ["OtherVersions"]


class OtherVersions(QObject):
    """Gives the find bar of `transcript` the messages that are not shown, and shows the one it asks for."""

    def __init__(self, session: ChatSession, transcript: TranscriptView, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._finding = session, transcript.finding
        self._finding.hidden_texts = self._texts
        self._finding.version_requested.connect(self._show)

    def _texts(self) -> tuple[HiddenText, ...]:
        conversation = self._session.conversation
        if not conversation:
            return ()
        try:
            return hidden_texts(self._session.stores.database_of(conversation), conversation)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return ()

    def _show(self, message: int, place: int, words: str) -> None:
        if self._session.open_message(message):
            self._finding.go_to(message, place, words)
