"""Attached files that are not sent yet, kept for the next start like the text of the draft."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.attachments import AttachmentService
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.services.system.debounce import debounce
from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.pictures import PictureStore
from desktop.store.attachments.whole_texts import WholeTextStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.database.database import StoreError
from engine.words import _

__all__ = ["DraftAttachments"]

SAVE_MS = 300
RETRY_MS = 3000


class DraftAttachments(QObject):
    """Saves what `attachments` holds for each chat, and restores it when the chat is first opened.

    Files of temporary chats are never written. `changed()`: other chats have files (`holding`).
    """

    changed = Signal()

    def __init__(
        self, session: ChatSession, attachments: AttachmentService, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._attachments = session, attachments
        self._store = DraftStore(session.stores.database)
        self.holding: frozenset[int] = frozenset()
        self._saved: dict[int, tuple[Attachment, ...]] = {}
        self._dirty: set[int] = set()
        self._failed = False
        self._timer = debounce(self, self.save, SAVE_MS)
        self._retry = debounce(self, self.save, RETRY_MS)
        attachments.changed.connect(self._on_changed)
        session.conversation_changed.connect(self._restore)
        self._look = debounce(self, self._forget_gone)  # when what is kept of a temporary chat was moved
        for signal in (session.conversation_changed, session.conversations.rowsRemoved):
            signal.connect(self._look_later)

    def begin(self) -> None:
        """Read which chats have files, when the program starts. Raises `StoreError`."""
        database = self._session.stores.database
        PictureStore(database).sweep()  # of drafts and messages that are gone
        WholeTextStore(database).sweep()
        self.holding = self._store.conversations_with_files()

    @Slot()
    def save(self) -> None:
        """Write what has changed. A failure is reported once, and it is tried again after a while."""
        self._timer.stop()
        self._retry.stop()
        for conversation in tuple(self._dirty):
            now = self._now(conversation)
            try:
                left_out = self._store.put_files(conversation, now)
            except StoreError as error:
                self._retry.start()
                if not self._failed:
                    self._failed = True
                    self._session.saving.began("files")
                    self._session.notice.emit(
                        _("The attached files are not saved yet: {error}", error=error), "error"
                    )
                return
            if self._failed:
                self._failed = False
                self._session.saving.ended("files")
            self._dirty.discard(conversation)
            if now:
                self._saved[conversation] = now
            else:
                self._saved.pop(conversation, None)
            if left_out:
                names = ", ".join(f"“{name}”" for name in left_out)
                self._session.notice.emit(
                    _(
                        "Too large to be saved with the draft, so attached only until you quit: {names}.",
                        names=names,
                    ),
                    "info",
                )
            self._set_holding(self.holding | {conversation} if now else self.holding - {conversation})

    def _now(self, conversation: int) -> tuple[Attachment, ...]:
        return tuple(held.attachment for held in self._attachments.held(conversation))

    def _set_holding(self, holding: frozenset[int]) -> None:
        if holding != self.holding:
            self.holding = holding
            self.changed.emit()

    @Slot(int)
    def _restore(self, conversation: int) -> None:
        if conversation not in self.holding or conversation in self._saved:
            return
        try:
            found = self._store.files(conversation)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return
        self._saved[conversation] = found
        self._attachments.put((*found, *self._now(conversation)), conversation)

    @Slot()
    def _look_later(self) -> None:
        self._look.start()

    def _forget_gone(self) -> None:
        """Keep the files of chats that were deleted in the store only; when one is restored, `_restore` has
        them.
        """
        there = {chat.id for chat in self._session.conversations.summaries()}
        there |= {self._session.conversation, *self._dirty}
        for conversation in [each for each in self._attachments.holding() if each not in there]:
            if is_temporary(conversation) or self._is_stored(conversation):
                self._attachments.forget(conversation)
                self._saved.pop(conversation, None)

    def _is_stored(self, conversation: int) -> bool:
        try:
            return self._store.files(conversation) == self._now(conversation)
        except StoreError:
            return False

    @Slot(int)
    def _on_changed(self, conversation: int) -> None:
        if not conversation or is_temporary(conversation):
            return
        self._restore(conversation)
        now = self._now(conversation)
        if now == self._saved.get(conversation, ()) and conversation not in self._dirty:
            return
        self._dirty.add(conversation)
        if not now:
            self.save()  # sent or removed: they must not come back
        elif not self._timer.isActive():
            self._timer.start()
