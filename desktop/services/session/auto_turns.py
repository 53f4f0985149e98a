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
        self._ended: tuple[int, int] | None = None
        self._stopped = False
        session.reply_ended.connect(self._on_ended)
        session.state_changed.connect(self._on_state)

    @Slot(int, int)
    def _on_ended(self, conversation: int, message: int) -> None:
        self._ended = (conversation, message)

    @Slot(str)
    def _on_state(self, state: str) -> None:
        # even if the reply was complete by then
        self._stopped = state == "stopping" or (self._stopped and state != "prefill")
        if state != "idle" or self._ended is None or self._session.state != "idle":
            return
        (conversation, message), self._ended = self._ended, None
        stopped, self._stopped = self._stopped, False
        if stopped or self._queue.waiting(conversation):
            return
        try:
            found = self._session.stores.of(message).message(message)
        except StoreError:  # a temporary chat that was left
            return
        if found.state == "complete":
            self._session.take_automatic_turn(conversation)
