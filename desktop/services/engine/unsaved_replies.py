"""Replies that are over and could not be saved, because the disk is full or the file locked: kept, and
tried again by the clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError

__all__ = ["Ended", "UnsavedReplies"]

RETRY_MS = 3000


class Ended(NamedTuple):
    """How a reply ended: what `ConversationStore.finish` takes."""

    text: str
    state: str
    stats: dict[str, Any]
    tokens: TokenTrace


class UnsavedReplies(QObject):
    """Saves ended replies; what cannot be saved stays here. Trouble is told once, until all is saved.

    `reason` is the sentence of the last trouble.

    Signals:
        trouble(str): something cannot be saved now.
        saved_again(): after trouble, everything is saved.
    """

    trouble = Signal(str)
    saved_again = Signal()

    def __init__(self, stores: ConversationStores, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stores = stores
        self._waiting: dict[int, Ended] = {}
        self._is_told = False
        self.reason = ""
        self._timer = QTimer(self)
        self._timer.setInterval(RETRY_MS)
        self._timer.timeout.connect(self.save)

    def find(self, message_id: int) -> Ended | None:
        """The end of a reply that is not saved yet."""
        return self._waiting.get(message_id)

    @property
    def in_trouble(self) -> bool:
        """Whether something could not be saved, and was not since."""
        return self._is_told

    @property
    def waiting(self) -> dict[int, str]:
        """The whole texts of the replies that wait, by the ids of their messages."""
        return {number: ended.text for number, ended in self._waiting.items()}

    def put(self, message_id: int, ended: Ended) -> None:
        """A reply is over; `save` writes it."""
        self._waiting[message_id] = ended

    @Slot()
    def save(self) -> None:
        """Write what waits."""
        for message_id, ended in tuple(self._waiting.items()):
            tokens = ended.tokens.pack() if len(ended.tokens) else b""
            try:
                self._stores.of(message_id).finish(message_id, ended.text, ended.state, ended.stats, tokens)
            except StoreError as error:
                self.tell(error)
                self._timer.start()
            else:
                del self._waiting[message_id]
        if not self._waiting:
            self._timer.stop()
            self.went_well()

    def tell(self, error: StoreError) -> None:
        """Something could not be written; the user hears of it once."""
        self.reason = str(error)
        if not self._is_told:
            self._is_told = True
            self.trouble.emit(str(error))

    def went_well(self) -> None:
        """Something was written: if nothing waits any more, trouble is over."""
        if self._is_told and not self._waiting:
            self._is_told = False
            self.saved_again.emit()

    def forget(self) -> None:
        """Another file is in the place of the one that these replies belong to."""
        self._waiting.clear()
        self._timer.stop()
        self._is_told = False

    def close(self) -> None:
        """Try once more, and stop the clock."""
        self.save()
        self._timer.stop()
