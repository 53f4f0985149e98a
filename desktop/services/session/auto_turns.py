"""AutomaticTurns: participants reply to each other until it is the user's turn."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from desktop.services.composer.queue import MessageQueue
from desktop.services.session.chat_session import ChatSession
from desktop.store.database.database import StoreError

__all__ = ["AutomaticTurns"]


class AutomaticTurns(QObject):
    """Created after `queue`, whose messages go first. Nothing follows a reply that was stopped or failed."""

    def __init__(self, session: ChatSession, queue: MessageQueue, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._queue = session, queue
        self._ended: dict[int, int] = {}  # by chat, the message of the reply
        session.reply_ended.connect(self._on_ended)
        session.became_free.connect(self._on_free)

    @Slot(int, int, bool)
    def _on_ended(self, conversation: int, message: int, stopped: bool) -> None:
        self._ended.pop(conversation, None)
        if not stopped:
            self._ended[conversation] = message

    @Slot()
    def _on_free(self) -> None:
        ended, self._ended = self._ended, {}
        for conversation, message in ended.items():
            self._go_on(conversation, message)

    def _go_on(self, conversation: int, message: int) -> None:
        if self._session.state_in(conversation) != "idle" or self._queue.waiting(conversation):
            return
        try:
            found = self._session.stores.of(message).message(message)
        except StoreError:  # a temporary chat that was left
            return
        if found.state == "complete":
            self._session.take_automatic_turn(conversation)
