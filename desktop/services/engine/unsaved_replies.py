"""Replies that are over and could not be saved (the disk is full, the file is locked): kept and retried."""

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
    """Saves ended replies and keeps what cannot be saved. The first failure is reported, further ones only
    after everything was saved again. `reason` is the sentence of the last failure.

    Signals:
        trouble(str): something cannot be saved now.
        saved_again(): everything is saved after a failure.
    """

    trouble = Signal(str)
    saved_again = Signal()

    def __init__(self, stores: ConversationStores, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stores = stores
        self._waiting: dict[int, Ended] = {}
        self._is_reported = False
        self.reason = ""
        self._timer = QTimer(self)
        self._timer.setInterval(RETRY_MS)
        self._timer.timeout.connect(self.save)

    def find(self, message_id: int) -> Ended | None:
        """The end of a reply that is not saved yet."""
        return self._waiting.get(message_id)

    @property
    def in_trouble(self) -> bool:
        """Whether something is still not saved."""
        return self._is_reported

    @property
    def waiting(self) -> dict[int, str]:
        """The whole texts of the replies that are not saved, by message id."""
        return {number: ended.text for number, ended in self._waiting.items()}

    def put(self, message_id: int, ended: Ended) -> None:
        """Add an ended reply, for `save` to write."""
        self._waiting[message_id] = ended

    @Slot()
    def save(self) -> None:
        """Write everything that is not saved yet."""
        for message_id, ended in tuple(self._waiting.items()):
            tokens = ended.tokens.pack() if len(ended.tokens) else b""
            try:
                self._stores.of(message_id).finish(message_id, ended.text, ended.state, ended.stats, tokens)
            except StoreError as error:
                self.report(error)
                self._timer.start()
            else:
                del self._waiting[message_id]
        if not self._waiting:
            self._timer.stop()
            self.went_well()

    def report(self, error: StoreError) -> None:
        """Something could not be written."""
        self.reason = str(error)
        if not self._is_reported:
            self._is_reported = True
            self.trouble.emit(str(error))

    def went_well(self) -> None:
        """Something was written: the failure is over if nothing else waits."""
        if self._is_reported and not self._waiting:
            self._is_reported = False
            self.saved_again.emit()

    def forget(self) -> None:
        """Drop everything: another file has replaced the one that these replies belong to."""
        self._waiting.clear()
        self._timer.stop()
        self._is_reported = False

    def close(self) -> None:
        """Try once more, and stop retrying."""
        self.save()
        self._timer.stop()
