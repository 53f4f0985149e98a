"""DocumentSaver: what is typed into a notebook, on its way to the disk; what cannot be saved waits, and is
tried again by the clock.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.engine.running_reply import CHECKPOINT_MS
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.store.database.database import StoreError

__all__ = ["SAVE_MS", "DocumentSaver"]

SAVE_MS = CHECKPOINT_MS
"""A typed text is handed to `save` this long after its first key at most, whatever is typed on: no crash
takes more than 0.5 s of it.
"""
RETRY_MS = 3000


class DocumentSaver(QObject):
    """Trouble is told once, until all is saved.

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
        self._told = False
        self._timer = QTimer(self)
        self._timer.setInterval(RETRY_MS)
        self._timer.timeout.connect(self.retry)

    def waiting(self, message_id: int) -> str | None:
        """The text of a document that is not saved yet."""
        found = self._waiting.get(message_id)
        return found[0] if found is not None else None

    def save(self, message_id: int, text: str, settled: bool) -> bool:
        """Save the text of a document, or keep it until that is possible."""
        self._waiting[message_id] = (text, settled)
        self.retry()
        return message_id not in self._waiting

    @Slot()
    def retry(self) -> None:
        """Write what waits."""
        for message_id, (text, settled) in tuple(self._waiting.items()):
            if self._session.save_document(message_id, text, settled) or self._is_gone(message_id):
                del self._waiting[message_id]
        if self._waiting:
            self._timer.start()
            if not self._told:
                self._told = True
                self.trouble.emit(
                    "What you are writing cannot be saved now. It stays here, and is saved as soon as "
                    "there is room."
                )
            return
        self._timer.stop()
        if self._told:
            self._told = False
            self.saved_again.emit()

    def _is_gone(self, message_id: int) -> bool:
        """Whether it was in a temporary notebook, which is forgotten when it is left."""
        if not is_temporary(message_id):
            return False
        try:
            self._session.stores.of(message_id).message(message_id)
        except StoreError:
            return True
        return False
