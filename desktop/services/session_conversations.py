"""The part of a session that shows conversations: which one is open, its path of messages, and what can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.conversations import ConversationsModel
from desktop.items.messages import MessageItem, MessagesModel
from desktop.services.model_slot import Describe, OpenChat
from desktop.services.paths import find_item, show_items
from desktop.services.replies import reason_text, stats_of
from desktop.services.reply_runner import ReplyRunner
from desktop.services.session_settings import SettingsSession, told
from desktop.services.undo import UndoStack
from desktop.store.conversations import ConversationSummary, SearchHit
from desktop.store.database import StoreError
from desktop.store.preferences import Preferences
from desktop.store.temporary import FIRST_TEMPORARY, Library
from desktop.store.tokens import TokenTrace
from engine.core import Stats

__all__ = ["ConversationSession"]


class ConversationSession(SettingsSession):
    """The list of conversations and the open one. A reply that runs in any of them goes on, whichever is open.

    `messages` and `conversations` are the item models of the transcript and the sidebar; `error_details` has the traceback
    of the last bug told.

    Signals:
        stats_changed(object, str reason): the `Stats` (or None) of the latest reply of the open conversation.
        running_changed(object): the `Stats` so far of the reply that runs in the open conversation, a few times a second.
        avoided(int count, str text): a banned text was taken back, the `count`-th of the reply that runs in the open conversation.
        conversation_changed(int): another conversation is open.
        title_changed(str): the open conversation's title.
        undo_available(bool, str what)
    """

    stats_changed = Signal(object, str)
    running_changed = Signal(object)
    avoided = Signal(int, str)
    conversation_changed = Signal(int)
    title_changed = Signal(str)
    undo_available = Signal(bool, str)

    def __init__(
        self, library: Library, preferences: Preferences, open_chat: OpenChat, describe: Describe, parent: QObject | None = None
    ) -> None:
        super().__init__(library, preferences, parent)
        self.messages = MessagesModel(self)
        self.conversations = ConversationsModel(self)
        self.error_details = ""
        self._undo = UndoStack(self)
        self._undo.available_changed.connect(self.undo_available)
        self._runner = ReplyRunner(library, open_chat, describe, self)
        self.messages.trace = self.tokens
        self._runner.grown.connect(self._on_grown)
        self._runner.changed.connect(self._on_changed)
        self._runner.ran.connect(self._on_ran)
        self._runner.avoided.connect(self._on_avoided)
        self._runner.ended.connect(self._on_ended)
        self._runner.trouble.connect(self._on_trouble)

    @property
    def replying_in(self) -> int:
        """The conversation whose reply runs; 0 when none does."""
        return self._runner.conversation_id

    @property
    def avoided_count(self) -> int:
        """How often a banned text was taken back in the reply that runs in the open conversation."""
        return self._runner.avoided_count if self.replying_in == self._conversation else 0

    def stop(self) -> None:
        """End the running reply within one token, or the loading of a model at its next step."""
        self._runner.engine.stop()

    # -- conversations ------------------------------------------------------------------------------------------------

    @told
    def restore(self) -> bool:
        """At the start: fill the sidebar, open the conversation of last time (else a new one), tell what had to be repaired."""
        for sentence in (*self.library.kept.notices, *self.preferences.notices):
            self.notice.emit(sentence, "warning")
        rows = self.library.kept.list()
        self.conversations.reset(rows)
        last = self.preferences.last_conversation
        return self._open(last) if any(row.id == last for row in rows) else self.new_conversation()

    @told
    def new_conversation(self) -> bool:
        """Open an empty conversation; one that is there already is used, so that they do not pile up."""
        newest = self._newest()
        if newest is not None and not newest.title and not self.library.kept.path(newest.id):
            return self._open(newest.id)
        made = self.library.kept.create()
        self._touched(made.id)
        return self._open(made.id)

    @told
    def open_conversation(self, conversation_id: int) -> bool:
        """Show another conversation; a reply that runs goes on."""
        return self._open(conversation_id)

    @told
    def open_message(self, message_id: int) -> bool:
        """Show the conversation and the variants that lead to a message: for a hit of the search."""
        store = self.library.of(message_id)
        store.show_variant(message_id)
        return self._open(store.message(message_id).conversation_id)

    @told
    def rename_conversation(self, conversation_id: int, title: str) -> bool:
        """Give a title; an empty one brings the automatic title back."""
        self.library.of(conversation_id).rename(conversation_id, title)
        self._touched(conversation_id)
        return True

    @told
    def delete_conversation(self, conversation_id: int) -> bool:
        """Take it out of the list (undoable); a reply that runs in it is stopped."""
        return self.delete_conversations((conversation_id,))

    @told
    def delete_conversations(self, ids: Collection[int]) -> bool:
        """Take several out of the list, to be brought back by one undo; a reply that runs in one of them is stopped."""
        if self.replying_in in ids:
            self.stop()
        for number in ids:
            self.library.of(number).delete(number)
        self.conversations.remove_all(ids)
        what = "delete conversation" if len(ids) == 1 else f"delete {len(ids):,} conversations"
        self._undo.push(what, lambda: self._restore_conversations(tuple(ids)))
        return self._leave_deleted()

    @told
    def reload_conversations(self) -> bool:
        """Many conversations came, went or moved, by no method of this session: read the list again."""
        temporary = [row for row in self.conversations.summaries() if row.id >= FIRST_TEMPORARY]
        rows = sorted([*temporary, *self.library.kept.list()], key=lambda row: (row.updated_at, row.id), reverse=True)
        if self.replying_in and self.library.of(self.replying_in).get(self.replying_in).deleted:
            self.stop()
        self.conversations.reset(rows)
        return self._leave_deleted()

    @told
    def restore_conversation(self, conversation_id: int) -> bool:
        """Bring a deleted conversation back and open it."""
        self._restore_conversations((conversation_id,))
        return True

    def tokens(self, message_id: int) -> TokenTrace | None:
        """The tokens of a reply, those so far of one that runs; None where none are known."""
        try:
            return self._runner.tokens(message_id)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return None

    def search(self, query: str, limit: int = 50) -> tuple[SearchHit, ...]:
        """Messages with all the words of `query`, latest first; none, with a notice, when the store has trouble."""
        try:
            return self.library.kept.search(query, limit)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return ()

    # -- messages -----------------------------------------------------------------------------------------------------

    @told
    def delete_message(self, message_id: int) -> bool:
        """Take a message and what follows it away (undoable); a reply that runs among them is stopped."""
        ids = [item.id for item in self.messages.items()]
        if message_id in ids and self._runner.message_id in ids[ids.index(message_id) :]:
            self.stop()
        self.library.of(message_id).delete_message(message_id)
        self._undo.push("delete message", lambda: self._restore_message(message_id))
        self._show_path()
        return True

    @told
    def show_variant(self, message_id: int, step: int) -> bool:
        """Show the variant `step` (-1 or +1) beside the message; False when there is none."""
        variants = self.library.of(message_id).variants(message_id)
        place = variants.index(message_id) + step
        if not 0 <= place < len(variants):
            return False
        self.library.of(message_id).show_variant(variants[place])
        self._show_path()
        return True

    def push_undo(self, what: str, undo: Callable[[], None]) -> None:
        """Something was done outside the session that `undo` takes back."""
        self._undo.push(what, undo)

    @told
    def undo(self) -> bool:
        """Take back the latest deletion."""
        return self._undo.undo()

    # -- parts --------------------------------------------------------------------------------------------------------

    def _open(self, conversation_id: int) -> bool:
        self._enter(conversation_id)
        self.messages.reset(self._items())
        self.conversation_changed.emit(conversation_id)
        self.title_changed.emit(self.title)
        self._tell_stats()
        self.preferences.remember_conversation(conversation_id)
        return True

    def _items(self) -> tuple[MessageItem, ...]:
        self._runner.flush()
        return tuple(map(self._runner.item, self._of_open.path(self._conversation)))

    def _show_path(self) -> None:
        show_items(self.messages, self._items())

    def _touched(self, conversation_id: int) -> None:
        """Bring title and place in the sidebar up to date."""
        found = self.library.of(conversation_id).summary(conversation_id)
        if found.deleted_at is None:
            self.conversations.put(found)
        if conversation_id == self._conversation:
            self.title_changed.emit(found.title)

    def _tell_stats(self) -> None:
        """The figures of the last reply; of one that runs here, those so far."""
        last = next((m for m in reversed(self._of_open.path(self._conversation)) if m.role == "assistant"), None)
        saved = last.stats if last is not None else {}
        self.stats_changed.emit(stats_of(saved), reason_text(saved))
        if self.replying_in == self._conversation and self._runner.stats is not None:
            self.running_changed.emit(self._runner.stats)

    def _restore_conversations(self, ids: Collection[int]) -> None:
        for number in ids:
            self.library.of(number).restore(number)
        self.conversations.put_all([self.library.of(number).summary(number) for number in ids])
        self._open(next(iter(ids)))

    def _leave_deleted(self) -> bool:
        """Open another conversation where the open one is deleted."""
        if self._conversation and not self._of_open.get(self._conversation).deleted:
            return True
        newest = self._newest()
        return self._open(newest.id) if newest is not None else self.new_conversation()

    def _newest(self) -> ConversationSummary | None:
        """The latest kept conversation of the list: reading 10,000 again to know it takes longer than a frame."""
        return next((row for row in self.conversations.summaries() if row.id < FIRST_TEMPORARY), None)

    def _restore_message(self, message_id: int) -> None:
        store = self.library.of(message_id)
        store.undelete_message(message_id)
        conversation_id = store.message(message_id).conversation_id
        if store.get(conversation_id).deleted:
            self.library.of(conversation_id).restore(conversation_id)
            self._touched(conversation_id)
        self._open(conversation_id) if conversation_id != self._conversation else self._show_path()

    @Slot(int, str)
    def _on_grown(self, message_id: int, text: str) -> None:
        if find_item(self.messages, message_id) is not None:
            self.messages.append_text(message_id, text)

    @Slot(int)
    @told
    def _on_changed(self, message_id: int) -> bool:
        self._runner.flush()
        if find_item(self.messages, message_id) is not None:
            self.messages.replace(message_id, self._runner.item(self.library.of(message_id).message(message_id)))
        return True

    @Slot(int, object)
    def _on_ran(self, conversation_id: int, stats: Stats) -> None:
        if conversation_id == self._conversation:
            self.running_changed.emit(stats)

    @Slot(int, int, str)
    def _on_avoided(self, conversation_id: int, count: int, text: str) -> None:
        if conversation_id == self._conversation:
            self.avoided.emit(count, text)

    @Slot(int, int)
    def _on_ended(self, conversation_id: int, message_id: int) -> None:
        self._refresh(conversation_id)

    @told
    def _refresh(self, conversation_id: int = 0) -> bool:
        """Show the path as it is now; for a conversation whose reply ended, its place and statistics too."""
        if conversation_id:
            self._touched(conversation_id)
        if conversation_id in (0, self._conversation):
            self._show_path()
        if conversation_id == self._conversation:
            self._tell_stats()
        return True

    @Slot(str, str)
    def _on_trouble(self, sentence: str, details: str) -> None:
        self.error_details = details
        self.notice.emit(sentence, "error")
