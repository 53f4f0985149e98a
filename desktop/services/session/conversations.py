"""Chats that come and go: new, opened, renamed, deleted and brought back, searched."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.session.context import is_temporary
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.tool_turns import ToolTurns
from desktop.services.session.undo import UndoStack
from desktop.services.session.visible_chat import VisibleChat
from desktop.store.conversations.conversations import ConversationSummary, SearchHit
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.forking import fork
from desktop.store.conversations.records import CHAT, NOTEBOOK
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.conversations.titles import set_model_title
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from engine.words import _, ngettext

__all__ = ["Conversations"]


class Conversations:
    """The list of chats and its actions; deletions can be undone. Replies that run in chats go on while
    another one is open.
    """

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        preferences: Preferences,
        runner: ReplyRunner,
        visible: VisibleChat,
        tools: ToolTurns,
    ) -> None:
        self._signals, self._stores, self._preferences = signals, stores, preferences
        self._runner, self._visible, self._tools = runner, visible, tools
        self.undo_stack = UndoStack(signals)
        self.undo_stack.available_changed.connect(signals.undo_available)

    # -- opening

    @reports_store_errors
    def restore(self, first: int = -1) -> bool:
        """At the start: fill the list, open the chat of last time (else a new one), report what had to be
        repaired.

        With `first`, only that many chats are listed, unless the one to open is further down; `list_all`
        adds the others.
        """
        kept, last = self._stores.kept, self._preferences.last_conversation
        for sentence in (*kept.notices, *self._preferences.notices):
            self._signals.notice.emit(sentence, "warning")
        rows = kept.list(first=first)
        known = any(row.id == last for row in rows)
        if not known and kept.is_listed(last):
            rows, known = kept.list(), True
        self._visible.listed.reset(rows)
        return self._visible.open(last) if known else self.new_conversation()

    @reports_store_errors
    def list_all(self) -> bool:
        """Show all chats in the list."""
        self._visible.listed.reset(self._stores.kept.list())
        return True

    @reports_store_errors
    def new_conversation(self, folder: int = 0) -> bool:
        """Open an empty chat in a folder, or (0) in none: the newest one there if it is empty and has no
        draft.
        """
        newest, drafts = self._newest(folder), DraftStore(self._stores.database)
        if newest is not None and not (
            newest.title or self._stores.kept.path(newest.id) or drafts.get(newest.id)
        ):
            return self._visible.open(newest.id)
        return self._open_new(CHAT, folder)

    @reports_store_errors
    def new_notebook(self) -> bool:
        """Open an empty notebook: the newest one if it is empty."""
        newest = self._newest(0)
        if (
            newest is not None
            and not newest.title
            and newest.kind == NOTEBOOK
            and not self._stores.kept.path(newest.id)[0].text
        ):
            return self._visible.open(newest.id)
        return self._open_new(NOTEBOOK)

    @reports_store_errors
    def new_temporary(self) -> bool:
        """Open an empty chat that is never written down and not listed; it is forgotten when another one is
        opened.
        """
        return self._visible.open(self._stores.temporary.create().id)

    @reports_store_errors
    def new_temporary_notebook(self) -> bool:
        """Open an empty notebook that is never written down."""
        return self._visible.open(self._stores.temporary.create(kind=NOTEBOOK).id)

    @reports_store_errors
    def keep_temporary(self) -> bool:
        """Write the open temporary chat down, with everything in it."""
        before = self._visible.id
        if not is_temporary(before):
            return False
        if before in self._runner.conversations:
            self._signals.notice.emit(
                _(
                    "A reply is still being written in this chat. Wait for it, or press Esc to stop it, "
                    "then save the chat."
                ),
                "warning",
            )
            return False
        now = self._stores.keep(before).id
        self._visible.rename_to(now)
        self._visible.touch(now)
        return self._visible.open(now)

    @reports_store_errors
    def open_conversation(self, conversation_id: int) -> bool:
        """Show another chat."""
        return self._visible.open(conversation_id)

    @reports_store_errors
    def open_message(self, message_id: int) -> bool:
        """Show the chat and the versions that lead to a message, such as a search hit."""
        store = self._stores.of(message_id)
        store.show_variant(message_id)
        return self._visible.open(store.message(message_id).conversation_id)

    @reports_store_errors
    def fork(self, message_id: int) -> bool:
        """Open a new chat that begins with what is shown up to a message; undo removes it."""
        source = self._stores.of(message_id).message(message_id).conversation_id
        made = fork(self._stores, message_id)
        self._visible.touch(made)
        self.undo_stack.push(_("fork chat"), lambda: self._unfork(made, source))
        return self._visible.open(made)

    # -- changing

    @reports_store_errors
    def rename_conversation(self, conversation_id: int, title: str) -> bool:
        """Give a title; an empty one restores the automatic title."""
        self._stores.of(conversation_id).rename(conversation_id, title)
        self._visible.touch(conversation_id)
        return True

    @reports_store_errors
    def name_after_topic(self, conversation_id: int, title: str) -> bool:
        """Give a kept chat a title that a model wrote; False if the user has named or deleted it."""
        if not set_model_title(self._stores.database, conversation_id, title):
            return False
        self._visible.touch(conversation_id)
        return True

    @reports_store_errors
    def delete_conversation(self, conversation_id: int) -> bool:
        """Delete a chat (undoable); a reply that runs in it is stopped."""
        return self.delete_conversations((conversation_id,))

    @reports_store_errors
    def delete_conversations(self, ids: Collection[int], instead: int = 0) -> bool:
        """Delete several chats with one undo; replies and calls of tools that run in them are stopped.

        If the open one is among them, the chat `instead` is opened, or (0) the latest.
        """
        for number in ids:
            self._runner.engine.stop_in(number)
            self._tools.stop(number)
        if self._visible.id in ids and is_temporary(self._visible.id):
            return self.new_conversation()  # which forgets it
        with self._stores.database.transaction():  # all of them or none
            for number in ids:
                self._stores.of(number).delete(number)
        self._visible.listed.remove_all(ids)
        what = ngettext("delete chat", "delete {n} chats", len(ids))
        self.undo_stack.push(what, lambda: self._restore_conversations(tuple(ids)))
        return self._leave_deleted(instead)

    @reports_store_errors
    def delete_message(self, message_id: int) -> bool:
        """Delete a message and what follows it (undoable); replies and calls of tools that run among them are
        stopped.
        """
        store = self._stores.of(message_id)
        for reply in self._runner.growing_in(store.message(message_id).conversation_id):
            if message_id in store.ancestry(reply.message_id):
                self._runner.engine.stop_reply(reply.message_id)
        self._tools.stop_below(message_id)
        store.delete_message(message_id)
        self.undo_stack.push(_("delete message"), lambda: self._restore_message(message_id))
        self._visible.show_path()
        return True

    @reports_store_errors
    def show_variant(self, message_id: int, step: int) -> bool:
        """Show the version before (-1) or after (+1) a message; False if there is none."""
        store = self._stores.of(message_id)
        variants = store.variants(message_id)
        place = variants.index(message_id) + step
        if not 0 <= place < len(variants):
            return False
        store.show_variant(variants[place])
        self._visible.show_path()
        return True

    @reports_store_errors
    def keep_version(self, message_id: int, discarded: Collection[int] = ()) -> bool:
        """Show this version of a message and delete `discarded`, others of it, with one undo; replies and
        calls of tools that run in those are stopped.
        """
        for number in discarded:
            self._tools.stop_below(number)
        self._stores.of(message_id).show_variant(message_id, discarded)
        for number in discarded:
            self._runner.engine.stop_reply(number)
        if discarded:
            what = ngettext("delete version", "delete {n} versions", len(discarded))
            self.undo_stack.push(what, lambda: self._restore_versions(tuple(discarded), message_id))
        self._visible.show_path()
        return True

    @reports_store_errors
    def undo(self) -> bool:
        """Undo the latest deletion."""
        return self.undo_stack.undo()

    # -- changed by others

    @reports_store_errors
    def reload_conversations(self) -> bool:
        """Read the list again: many chats came, went or moved without this session."""
        for running in {*self._runner.conversations, *self._tools.conversations}:
            if self._stores.of(running).get(running).deleted:
                self._runner.engine.stop_in(running)
                self._tools.stop(running)
        return self.list_all() and self._leave_deleted()

    @reports_store_errors
    def catch_up(self, changed: Mapping[int, bool] = {}) -> bool:
        """Show what another thread wrote, as an import does.

        `changed` maps the ids of the chats that came or grew to whether they are new.
        """
        listed = self.reload_conversations()
        self._signals.library_changed.emit()
        return (listed and changed.get(self._visible.id) is not False) or self._visible.refresh()

    @reports_store_errors
    def start_again(self) -> bool:
        """Show another file that has replaced the old one, and forget what belonged to that."""
        self.undo_stack.clear()
        self._runner.unsaved.forget()
        self._stores.kept.notices = ()
        self._visible.leave()
        self._signals.file_replaced.emit()
        rows = self._stores.kept.list()
        self._visible.listed.reset(rows)
        self._signals.library_changed.emit()
        return self._visible.open(rows[0].id) if rows else self.new_conversation()

    def search(self, query: str, limit: int = 50) -> tuple[SearchHit, ...]:
        """Messages with all the words of `query`, latest first; none, with a notice, if the store fails."""
        try:
            return self._stores.kept.search(query, limit)
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            return ()

    # -- parts

    def _open_new(self, kind: str, folder: int = 0) -> bool:
        made = self._stores.kept.create(kind=kind)
        if folder:
            self._stores.kept.move([made.id], folder)
        self._visible.touch(made.id)
        return self._visible.open(made.id)

    def _newest(self, folder: int | None = None) -> ConversationSummary | None:
        """The latest kept chat of the list, in a folder or (0) in none if that is asked for; reading 10,000
        from the store takes longer than a frame.
        """
        kept = (row for row in self._visible.listed.summaries() if row.id < FIRST_TEMPORARY)
        return next((row for row in kept if folder is None or (row.folder_id or 0) == folder), None)

    def _leave_deleted(self, instead: int = 0) -> bool:
        """Open another chat if the open one is deleted."""
        context = self._visible.context
        if context.id and not context.store.get(context.id).deleted:
            return True
        if instead:
            return self._visible.open(instead)
        newest = self._newest()
        return self._visible.open(newest.id) if newest is not None else self.new_conversation()

    def _unfork(self, made: int, source: int) -> None:
        self._runner.engine.stop_in(made)
        self._tools.stop(made)
        self._stores.of(made).delete(made)
        self._visible.listed.remove(made)
        if self._visible.id == made:
            self._visible.open(source)

    def _restore_conversations(self, ids: Collection[int]) -> None:
        with self._stores.database.transaction():  # all of them or none, and one commit
            for number in ids:
                self._stores.of(number).restore(number)
        self._visible.listed.put_all([self._stores.of(number).summary(number) for number in ids])
        self._visible.open(next(iter(ids)))

    def _restore_versions(self, ids: Collection[int], kept: int) -> None:
        for number in ids:
            self._restore_message(number)
        self._stores.of(kept).show_variant(kept)
        self._visible.show_path()

    def _restore_message(self, message_id: int) -> None:
        store = self._stores.of(message_id)
        try:
            conversation_id = store.message(message_id).conversation_id
        except StoreError as error:
            if not is_temporary(message_id):
                raise
            raise StoreError(_("That message was in a temporary chat that has been discarded.")) from error
        store.undelete_message(message_id)
        if store.get(conversation_id).deleted:
            self._stores.of(conversation_id).restore(conversation_id)
            self._visible.touch(conversation_id)
        if conversation_id == self._visible.id:
            self._visible.show_path()
        else:
            self._visible.open(conversation_id)
