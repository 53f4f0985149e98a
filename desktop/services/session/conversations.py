"""The part of a session that shows conversations: which one is open, its path of messages, and what can be
taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.chats.conversations import ConversationsModel
from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.engine.model_host import Describe, OpenChat
from desktop.services.engine.reply_record import reason_text, stats_of
from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.session.paths import find_item, show_items
from desktop.services.session.placement import PlacedSession, is_temporary
from desktop.services.session.settings import told
from desktop.services.session.undo import UndoStack
from desktop.store.conversations.conversations import ConversationSummary, SearchHit
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from engine.core import Stats

__all__ = ["ConversationSession"]


class ConversationSession(PlacedSession):
    """The list of conversations and the open one.

    A reply that runs in any of them goes on, whichever is open.

    `messages` and `conversations` are the item models of the transcript and the sidebar; `error_details` has
    the traceback of the last bug told.

    Signals:
        stats_changed(object, str reason): the `Stats` (or None) of the latest reply of the open conversation.
        running_changed(object): the `Stats` so far of the reply that runs in the open conversation, a few
        times a second. avoided(int count, str text): a banned text was taken back, the `count`-th of the
        reply that runs in the open conversation. conversation_changed(int): another conversation is open.
        title_changed(str): the open conversation's title.
        undo_available(bool, str what)
        library_changed(): conversations and folders came, went or changed by something else than this
        session.
    """

    stats_changed = Signal(object, str)
    running_changed = Signal(object)
    avoided = Signal(int, str)
    conversation_changed = Signal(int)
    title_changed = Signal(str)
    undo_available = Signal(bool, str)
    library_changed = Signal()
    _PLACE = (*PlacedSession._PLACE, "_kind_of", "_kind")

    def __init__(
        self,
        stores: ConversationStores,
        preferences: Preferences,
        open_chat: OpenChat,
        describe: Describe,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(stores, preferences, parent)
        self.messages = MessagesModel(self)
        self.conversations = ConversationsModel(self)
        self.error_details = ""
        self._undo = UndoStack(self)
        self._undo.available_changed.connect(self.undo_available)
        self._runner = ReplyRunner(stores, open_chat, describe, self)
        self.messages.trace = self.tokens
        self._runner.grown.connect(self._on_grown)
        self._runner.changed.connect(self._on_changed)
        self._kind_of, self._kind = 0, ""
        self._runner.ran.connect(self._on_ran)
        self._runner.avoided.connect(self._on_avoided)
        self._runner.ended.connect(self._on_ended)
        self._runner.trouble.connect(self._on_trouble)
        self._runner.saved_again.connect(self._on_saved_again)

    @property
    def replies(self) -> ReplyRunner:
        """What runs the replies, for those who want to know more of them."""
        return self._runner

    @property
    def replying_in(self) -> int:
        """The conversation whose reply runs; 0 when none does."""
        return self._runner.conversation_id

    @property
    def avoided_count(self) -> int:
        """How often a banned text was taken back in the reply that runs in the open conversation."""
        return self._runner.avoided_count if self.replying_in == self._conversation else 0

    @property
    def notebook(self) -> bool:
        """Whether the open conversation is a notebook; False where the store cannot tell, because its file
        was just replaced.
        """
        if self._kind_of != self._conversation:
            try:
                kind = self._of_open.get(self._conversation).kind if self._conversation else ""
            except StoreError:
                return False
            self._kind_of, self._kind = self._conversation, kind
        return self._kind == NOTEBOOK

    def stop(self) -> None:
        """End the running reply within one token, or the loading of a model at its next step."""
        self._runner.engine.stop()

    @told
    def restore(self, first: int = -1) -> bool:
        """At the start: fill the sidebar, open the conversation of last time (else a new one), tell what had
        to be repaired.

        With `first` only so many chats are listed, unless the one to open is further down; `list_all` brings
        the others.
        """
        for sentence in (*self.stores.kept.notices, *self.preferences.notices):
            self.notice.emit(sentence, "warning")
        kept, last = self.stores.kept, self.preferences.last_conversation
        rows = kept.list(first=first)
        known = any(row.id == last for row in rows)
        if not known and kept.is_listed(last):
            rows, known = kept.list(), True
        self.conversations.reset(rows)
        return self._open(last) if known else self.new_conversation()

    @told
    def list_all(self) -> bool:
        """Show all chats in the list."""
        self.conversations.reset(self.stores.kept.list())
        return True

    @told
    def new_conversation(self) -> bool:
        """Open an empty conversation; one that is there already, with nothing unsent, is used, so that
        they do not pile up.
        """
        newest, drafts = self._newest(), DraftStore(self.stores.database)
        if newest is not None and not (
            newest.title or self.stores.kept.path(newest.id) or drafts.get(newest.id)
        ):
            return self._open(newest.id)
        made = self.stores.kept.create()
        self._touched(made.id)
        return self._open(made.id)

    @told
    def new_temporary(self) -> bool:
        """Open an empty conversation that is never written down and in no list; it is forgotten when
        another one is opened.
        """
        return self._open(self.stores.temporary.create().id)

    @told
    def keep_temporary(self) -> bool:
        """Write the open temporary conversation down, with all that is in it, and go on in the kept one."""
        if not self.temporary:
            return False
        if self.replying_in == self._conversation:
            self.notice.emit(
                "A reply is still being written here: stop it with Esc or wait, then keep the chat.",
                "warning",
            )
            return False
        self._conversation = self.stores.keep(self._conversation).id
        self._touched(self._conversation)
        return self._open(self._conversation)

    @told
    def open_conversation(self, conversation_id: int) -> bool:
        """Show another conversation; a reply that runs goes on."""
        return self._open(conversation_id)

    @told
    def open_message(self, message_id: int) -> bool:
        """Show the conversation and the variants that lead to a message: for a hit of the search."""
        store = self.stores.of(message_id)
        store.show_variant(message_id)
        return self._open(store.message(message_id).conversation_id)

    @told
    def rename_conversation(self, conversation_id: int, title: str) -> bool:
        """Give a title; an empty one brings the automatic title back."""
        self.stores.of(conversation_id).rename(conversation_id, title)
        self._touched(conversation_id)
        return True

    @told
    def delete_conversation(self, conversation_id: int) -> bool:
        """Take it out of the list (undoable); a reply that runs in it is stopped."""
        return self.delete_conversations((conversation_id,))

    @told
    def delete_conversations(self, ids: Collection[int]) -> bool:
        """Take several out of the list, to be brought back by one undo; a reply that runs in one of them
        is stopped.
        """
        if self.replying_in in ids:
            self.stop()
        if self._conversation in ids and is_temporary(self._conversation):
            return self.new_conversation()  # which forgets it
        with self.stores.database.transaction():  # all of them, or none with nothing to take back
            for number in ids:
                self.stores.of(number).delete(number)
        self.conversations.remove_all(ids)
        what = "delete conversation" if len(ids) == 1 else f"delete {len(ids):,} conversations"
        self._undo.push(what, lambda: self._restore_conversations(tuple(ids)))
        return self._leave_deleted()

    @told
    def reload_conversations(self) -> bool:
        """Many conversations came, went or moved, by no method of this session: read the list again."""
        if self.replying_in and self.stores.of(self.replying_in).get(self.replying_in).deleted:
            self.stop()
        return self.list_all() and self._leave_deleted()

    @told
    def restore_conversation(self, conversation_id: int) -> bool:
        """Bring a deleted conversation back and open it."""
        self._restore_conversations((conversation_id,))
        return True

    @told
    def catch_up(self, changed: Mapping[int, bool] = {}) -> bool:
        """Conversations were written by another thread, as an import does: show the list as it is now, and
        the open one if it grew.

        `changed` maps the ids of those that came or grew to whether they are new.
        """
        listed = self.reload_conversations()
        self.library_changed.emit()
        return (listed and changed.get(self._conversation) is not False) or self._refresh()

    @told
    def start_again(self) -> bool:
        """Another file is in the place of the old one: forget what belonged to that, and show this one."""
        self._undo.clear()
        self._runner.unsaved.forget()
        self.stores.kept.notices = ()
        self._conversation = 0
        rows = self.stores.kept.list()
        self.conversations.reset(rows)
        self.library_changed.emit()
        return self._open(rows[0].id) if rows else self.new_conversation()

    def tokens(self, message_id: int) -> TokenTrace | None:
        """The tokens of a reply, those so far of one that runs; None where none are known."""
        try:
            return self._runner.tokens(message_id)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return None

    def search(self, query: str, limit: int = 50) -> tuple[SearchHit, ...]:
        """Messages with all the words of `query`, latest first; none, with a notice, when the store has
        trouble.
        """
        try:
            return self.stores.kept.search(query, limit)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return ()

    @told
    def delete_message(self, message_id: int) -> bool:
        """Take a message and what follows it away (undoable); a reply that runs among them is stopped."""
        ids = [item.id for item in self.messages.items()]
        if message_id in ids and self._runner.message_id in ids[ids.index(message_id) :]:
            self.stop()
        self.stores.of(message_id).delete_message(message_id)
        self._undo.push("delete message", lambda: self._restore_message(message_id))
        self._show_path()
        return True

    @told
    def show_variant(self, message_id: int, step: int) -> bool:
        """Show the variant `step` (-1 or +1) beside the message; False when there is none."""
        variants = self.stores.of(message_id).variants(message_id)
        place = variants.index(message_id) + step
        if not 0 <= place < len(variants):
            return False
        self.stores.of(message_id).show_variant(variants[place])
        self._show_path()
        return True

    def push_undo(self, what: str, undo: Callable[[], None]) -> None:
        """Something was done outside the session that `undo` takes back."""
        self._undo.push(what, undo)

    @told
    def undo(self) -> bool:
        """Take back the latest deletion."""
        return self._undo.undo()

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _open(self, conversation_id: int) -> bool:
        before, standing = self._conversation, self._standing()
        try:
            self._kind_of = 0
            self._enter(conversation_id)
            items = self._items()
        except StoreError:
            self._go_back(standing)
            raise
        self.messages.reset(items)
        self.conversation_changed.emit(conversation_id)
        self.title_changed.emit(self.title)
        self._tell_stats()
        if not self.temporary:
            self.preferences.remember_conversation(conversation_id)
        self._forget(before)
        return True

    def _forget(self, conversation_id: int) -> None:
        """Drop a temporary conversation that was left, as soon as no reply runs in it."""
        if is_temporary(conversation_id) and conversation_id not in (self._conversation, self.replying_in):
            self.stores.forget(conversation_id)

    def _items(self) -> tuple[MessageItem, ...]:
        if self.notebook:  # its document is shown by a page of its own, not by the transcript
            return ()
        return tuple(map(self._runner.item, self._of_open.path(self._conversation)))

    def _show_path(self) -> None:
        show_items(self.messages, self._items())

    def _touched(self, conversation_id: int) -> None:
        """Bring title and place in the sidebar up to date."""
        found = self.stores.of(conversation_id).summary(conversation_id)
        if found.deleted_at is None and not is_temporary(conversation_id):
            self.conversations.put(found)
        if conversation_id == self._conversation:
            self.title_changed.emit(found.title)

    def _tell_stats(self) -> None:
        """The figures of the last reply; of one that runs here, those so far."""
        path = self._of_open.path(self._conversation)
        saved = next((message.stats for message in reversed(path) if message.role == "assistant"), {})
        self.stats_changed.emit(stats_of(saved), reason_text(saved))
        if self.replying_in == self._conversation and self._runner.stats is not None:
            self.running_changed.emit(self._runner.stats)

    def _restore_conversations(self, ids: Collection[int]) -> None:
        for number in ids:
            self.stores.of(number).restore(number)
        self.conversations.put_all([self.stores.of(number).summary(number) for number in ids])
        self._open(next(iter(ids)))

    def _leave_deleted(self) -> bool:
        """Open another conversation where the open one is deleted."""
        if self._conversation and not self._of_open.get(self._conversation).deleted:
            return True
        newest = self._newest()
        return self._open(newest.id) if newest is not None else self.new_conversation()

    def _newest(self) -> ConversationSummary | None:
        """The latest kept conversation of the list: reading 10,000 again to know it takes longer than a
        frame.
        """
        return next((row for row in self.conversations.summaries() if row.id < FIRST_TEMPORARY), None)

    def _restore_message(self, message_id: int) -> None:
        store = self.stores.of(message_id)
        try:
            conversation_id = store.message(message_id).conversation_id
        except StoreError as error:
            if not is_temporary(message_id):
                raise
            raise StoreError(
                "That message was in a temporary chat, which was left and is forgotten."
            ) from error
        store.undelete_message(message_id)
        if store.get(conversation_id).deleted:
            self.stores.of(conversation_id).restore(conversation_id)
            self._touched(conversation_id)
        self._open(conversation_id) if conversation_id != self._conversation else self._show_path()

    @Slot(int, str)
    def _on_grown(self, message_id: int, text: str) -> None:
        if find_item(self.messages, message_id) is not None:
            self.messages.append_text(message_id, text)

    @Slot(int)
    @told
    def _on_changed(self, message_id: int) -> bool:
        if find_item(self.messages, message_id) is not None:
            self.messages.replace(
                message_id, self._runner.item(self.stores.of(message_id).message(message_id))
            )
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
            self._forget(conversation_id)
        if conversation_id in (0, self._conversation):
            self._show_path()
        if conversation_id == self._conversation:
            self._tell_stats()
        return True

    @Slot()
    def _on_saved_again(self) -> None:
        self._say(self.notice, "Everything is saved again.", "info")

    @Slot(str, str)
    def _on_trouble(self, sentence: str, details: str) -> None:
        self.error_details = details
        self._say(self.notice, sentence, "error")
