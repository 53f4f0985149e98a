"""Saves what is typed into a notebook; what cannot be saved waits and is retried."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.engine.running_reply import CHECKPOINT_MS
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.store.database.database import StoreError
from engine.words import _

__all__ = ["SAVE_MS", "DocumentSaver"]

SAVE_MS = CHECKPOINT_MS
"""Typed text is passed to `save` at most this long after its first keystroke: a crash loses at most 0.5 s of
it.
"""
RETRY_MS = 3000


class DocumentSaver(QObject):
    """Saves documents; a failure is reported once, until everything is saved.

    Signals:
        trouble(str): something typed cannot be saved now.
        saved_again(): after trouble, everything is saved.
    """

    trouble = Signal(str)
    saved_again = Signal()

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._waiting: dict[int, tuple[str, bool]] = {}
        self._reported = False
        self._timer = QTimer(self)
        self._timer.setInterval(RETRY_MS)
        self._timer.timeout.connect(self.retry)

    def waiting(self, message_id: int) -> str | None:
        """The text of a document that is not saved yet, or None."""
        found = self._waiting.get(message_id)
        return found[0] if found is not None else None

    def save(self, message_id: int, text: str, settled: bool) -> bool:
        """Save the text of a document, or keep it until that is possible; returns whether it is saved."""
        self._waiting[message_id] = (text, settled)
        self.retry()
        return message_id not in self._waiting

    @Slot()
    def retry(self) -> None:
        """Write everything that waits."""
        for message_id, (text, settled) in tuple(self._waiting.items()):
            if self._session.save_document(message_id, text, settled) or self._is_gone(message_id):
                del self._waiting[message_id]
        if self._waiting:
            self._timer.start()
            if not self._reported:
                self._reported = True
                self.trouble.emit(
                    _(
                        "Your text cannot be saved now. It stays here and is saved as soon as there is "
                        "disk space."
                    )
                )
            return
        self._timer.stop()
        if self._reported:
            self._reported = False
            self.saved_again.emit()

    def _is_gone(self, message_id: int) -> bool:
        """Whether it was in a temporary notebook, which is discarded when it is left."""
        if not is_temporary(message_id):
            return False
        try:
            self._session.stores.of(message_id).message(message_id)
        except StoreError:
            return True
        return False
