"""Saves unsent text for the next start: half a second after a key, when a chat is left, and at the end."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.draft_attachments import DraftAttachments
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.services.system.debounce import debounce
from desktop.store.conversations.drafts import DraftStore
from desktop.store.database.database import StoreError
from desktop.views.composer.composer import Composer
from engine.words import _

__all__ = ["DraftAutosave", "saved_draft"]

SAVE_MS = 500
RETRY_MS = 3000


def saved_draft(session: ChatSession, conversation: int) -> tuple[str, str]:
    """The saved text and opening of a chat's draft, both empty if there is none or it cannot be read."""
    store = DraftStore(session.stores.database)
    try:
        return store.get(conversation), store.opening(conversation)
    except StoreError as error:
        session.notice.emit(str(error), "error")
        return "", ""


class DraftAutosave(QObject):
    """Saves the drafts of `composer`; those of temporary chats are never written. What cannot be saved is
    kept and tried again, whatever chat is open by then.

    `changed(frozenset)`: the conversations that have a draft.
    """

    changed = Signal(object)

    def __init__(
        self, session: ChatSession, composer: Composer, files: DraftAttachments, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._composer, self._files = session, composer, files
        self._store = DraftStore(session.stores.database)
        self._known: frozenset[int] = frozenset()
        self._waiting: dict[int, tuple[str, str]] = {}
        self._dirty = self._failed = False
        self._timer = debounce(self, self.save, SAVE_MS)
        self._retry = debounce(self, self._write, RETRY_MS)
        session.file_replaced.connect(self._forget)
        composer.left.connect(self._leave)
        composer.box.textChanged.connect(self._on_text)
        composer.opening_box.textChanged.connect(self._on_text)
        composer.opening_button.toggled.connect(self._on_text)
        files.changed.connect(self._mark)

    def begin(self) -> None:
        """Emit which conversations have a draft."""
        try:
            self._files.begin()
            self._known = self._store.conversations()
            self._mark()
        except StoreError as error:
            self._session.notice.emit(str(error), "error")

    def save(self) -> None:
        """Save what was typed; an error and its end are reported."""
        self._timer.stop()
        self._files.save()
        if self._dirty:
            self._put(self._composer.conversation, self._composer.text(), self._composer.opening())
        else:
            self._write()

    def _on_text(self) -> None:
        if is_temporary(self._composer.conversation):
            return
        self._dirty = True
        if not self._composer.text().strip() and not self._composer.opening():
            self.save()  # It was sent or deleted: nothing of it may come back.
        elif not self._timer.isActive():
            self._timer.start()

    def _leave(self, conversation: int, text: str, opening: str) -> None:
        """Save before another chat is shown."""
        self._timer.stop()
        if self._dirty:
            self._put(conversation, text, opening)

    def _put(self, conversation: int, text: str, opening: str) -> None:
        self._dirty = False
        if conversation and not is_temporary(conversation):
            self._waiting[conversation] = text, opening
            self._write()

    def _write(self) -> None:
        """Save all drafts that are not saved."""
        self._retry.stop()
        wrote = False
        for conversation, (text, opening) in tuple(self._waiting.items()):
            holds = bool(text.strip() or opening.strip())
            if holds or conversation in self._known:
                try:
                    self._store.put(conversation, text, opening)
                except StoreError as error:
                    self._retry.start()
                    if not self._failed:
                        self._failed = True
                        self._session.saving.began("draft")
                        words = _("Your text is not saved yet: {error}", error=error)
                        self._session.notice.emit(words, "error")
                    return
                wrote = True
            del self._waiting[conversation]
            self._note(conversation, holds)
        self._failed = False
        (self._session.saving.ended if wrote else self._session.saving.forget)("draft")

    def _note(self, conversation: int, holds: bool) -> None:
        known = self._known | {conversation} if holds else self._known - {conversation}
        if known != self._known:
            self._known = known
            self._mark()

    @Slot()
    def _forget(self) -> None:
        """Drop what is not saved: the chats that it belongs to are gone with their file."""
        self._retry.stop()
        self._waiting.clear()
        self._failed = False

    def _mark(self) -> None:
        self.changed.emit(self._known | self._files.holding)
