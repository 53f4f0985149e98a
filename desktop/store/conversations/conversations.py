"""Conversations and their messages: each conversation is a tree in SQLite of which one path is shown.

Every change is one short transaction, so nothing that a method has written is lost when the process dies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from desktop.store.conversations.messages import (
    first_title,
    read_ancestry,
    read_message,
    read_path_to,
    read_tree,
    read_unshown,
)
from desktop.store.conversations.participants import UNNAMED, Author, Cast
from desktop.store.conversations.path_cache import PathCache
from desktop.store.conversations.records import (
    CHAT,
    NOTEBOOK,
    STATES,
    Conversation,
    ConversationSummary,
    SearchHit,
    StoredMessage,
    auto_title,
)
from desktop.store.conversations.tool_calls import StoredCall
from desktop.store.database.database import Database, StoreError
from desktop.store.database.errors import missing
from desktop.store.search.search import Search
from engine.words import N_, _

__all__ = ["Conversation", "ConversationStore", "ConversationSummary", "SearchHit", "StoredMessage"]


class ConversationStore:
    """Reads and writes the conversations of one database, on the thread that opened it.

    Opening marks replies that a killed process left "running" as "stopped", with their last checkpoint.
    `notices` holds sentences about what opening the file had to do. Methods raise `StoreError` for an unknown
    id and for trouble with the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._search, self._paths = Search(database), PathCache(database)
        self.notices = database.notices
        with database.transaction():
            database.execute("UPDATE messages SET state = 'stopped' WHERE state = 'running'")

    def create(
        self, title: str = "", settings: Mapping[str, Mapping[str, Any]] | None = None, kind: str = CHAT
    ) -> Conversation:
        """Create a conversation: empty, or with the empty document of a notebook.

        Without a title it is named after its first text.
        """
        now = time.time()
        cursor = self._database.execute(
            "INSERT INTO conversations (title, auto_title, created_at, updated_at, settings, kind) VALUES "
            "(?, ?, ?, ?, ?, ?)",
            (title, not title, now, now, json.dumps(settings or {}), kind),
        )
        made = int(cursor.lastrowid or 0)
        if kind == NOTEBOOK:
            self.add_message(made, None, "assistant", "")
        return self.get(made)

    def list(self, deleted: bool = False, first: int = -1) -> tuple[ConversationSummary, ...]:
        """All present (or all deleted) conversations, latest first.

        With `first`, only that many of the latest ones, and all that are pinned or in a folder, because the
        sidebar shows those above the others.
        """
        latest = "SELECT id FROM conversations WHERE deleted = ?1 ORDER BY updated_at DESC, id DESC LIMIT ?2"
        condition = "" if first < 0 else f" AND (pinned OR folder_id IS NOT NULL OR id IN ({latest}))"
        rows = self._database.execute(
            "SELECT id, title, updated_at, folder_id, pinned, deleted_at, kind FROM conversations "
            f"WHERE deleted = ?1{condition} ORDER BY updated_at DESC, id DESC",
            (int(deleted),) if first < 0 else (int(deleted), first),
        ).fetchall()
        return tuple(map(ConversationSummary._make, rows))

    def is_listed(self, conversation_id: int) -> bool:
        """Whether the conversation exists and is not in the trash."""
        return (
            self._database.execute(
                "SELECT 1 FROM conversations WHERE id = ? AND deleted = 0", (conversation_id,)
            ).fetchone()
            is not None
        )

    def summary(self, conversation_id: int) -> ConversationSummary:
        """The sidebar's row of one conversation, deleted or not."""
        row = self._database.execute(
            "SELECT id, title, updated_at, folder_id, pinned, deleted_at, kind FROM conversations WHERE id "
            "= ?",
            (conversation_id,),
        ).fetchone()
        if row is None:
            raise missing(N_("chat"), conversation_id)
        return ConversationSummary._make(row)

    def get(self, conversation_id: int) -> Conversation:
        row = self._database.execute(
            "SELECT id, title, created_at, updated_at, deleted, settings, system_prompt, model_path, "
            "folder_id, pinned, persona_id, inherits_prompt, roles, kind, local_only "
            "FROM conversations WHERE id = ?",
            (conversation_id,),
        ).fetchone()
        if row is None:
            raise missing(N_("chat"), conversation_id)
        (number, title, created, updated, deleted, settings, prompt, model_path, folder, pinned, persona,
         inherits, cast, kind, local_only) = row  # fmt: skip
        return Conversation(
            number, title, created, updated, bool(deleted), json.loads(settings), prompt, model_path, folder,
            bool(pinned), persona, bool(inherits), Cast.read(cast), kind, bool(local_only),
        )  # fmt: skip

    def rename(self, conversation_id: int, title: str) -> None:
        """Set the title; an empty one brings back the automatic title. The place in the list stays."""
        title = " ".join(title.split())
        shown = title or first_title(self._database, conversation_id)
        self._set(conversation_id, "title = ?, auto_title = ?", shown, not title)

    def delete(self, conversation_id: int) -> None:
        """Move it to the trash (`trash.py`), out of the list and the search; `restore` brings it back."""
        self._set(conversation_id, "deleted = 1, deleted_at = ?", time.time())

    def restore(self, conversation_id: int) -> None:
        """Undo `delete`. Raises `StoreError` once permanent deletion has begun."""
        changed = self._database.execute(
            "UPDATE conversations SET deleted = 0, deleted_at = NULL WHERE id = ? AND deleted = 1",
            (conversation_id,),
        ).rowcount
        if not changed and self.get(conversation_id).deleted:
            raise StoreError(_("This chat is being deleted permanently and cannot be restored."))

    def set_settings(self, conversation_id: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the values that this conversation changes."""
        self._set(conversation_id, "settings = ?", json.dumps(settings))

    def set_system_prompt(self, conversation_id: int, text: str, inherit: bool = True) -> None:
        """Replace the system prompt; with `inherit`, an empty one stands for the persona's or a folder's."""
        self._set(conversation_id, "system_prompt = ?, inherits_prompt = ?", text, inherit)

    def pin(self, conversation_id: int, pinned: bool = True) -> None:
        self._set(conversation_id, "pinned = ?", pinned)

    def move(self, conversation_ids: Iterable[int], folder_id: int | None) -> None:
        """Move conversations into a folder, or out of all folders (None): either all of them or none."""
        with self._database.transaction():
            if (
                folder_id is not None
                and not self._database.execute("SELECT 1 FROM folders WHERE id = ?", (folder_id,)).fetchone()
            ):
                raise missing(N_("folder"), folder_id)
            for conversation_id in conversation_ids:
                self._set(conversation_id, "folder_id = ?", folder_id)

    def set_persona(self, conversation_id: int, persona_id: int | None) -> None:
        self._set(conversation_id, "persona_id = ?", persona_id)

    def set_cast(self, conversation_id: int, cast: Cast) -> None:
        self._set(conversation_id, "roles = ?", cast.text())

    def set_local_only(self, conversation_id: int, on: bool) -> None:
        self._set(conversation_id, "local_only = ?", on)

    def set_model_path(self, conversation_id: int, path: str) -> None:
        self._set(conversation_id, "model_path = ?", path)

    # -- messages

    def add_message(
        self,
        conversation_id: int,
        parent_id: int | None,
        role: str,
        text: str,
        state: str = "complete",
        author: Author = UNNAMED,
        call: StoredCall | None = None,
    ) -> StoredMessage:
        """Add a message by `author`, or of a `call`, below `parent_id` (None: at the top); show it there."""
        _check_state(state)
        now = time.time()
        with self._database.transaction():
            parent = self.message(parent_id) if parent_id is not None else None
            if parent is not None and parent.conversation_id != conversation_id:
                words = _("Message {id} does not belong to chat {chat}.", id=parent_id, chat=conversation_id)
                raise StoreError(words)
            cursor = self._database.execute(
                "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at, speaker, "
                "speaker_persona, tool_call) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (conversation_id, parent_id, role, text, state, now, *author, call.text() if call else ""),
            )
            message_id = int(cursor.lastrowid or 0)
            self._show(conversation_id, parent_id, message_id)
            self._touch(conversation_id, now)
            if role == "user":
                self._database.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND auto_title AND title = ''",
                    (auto_title(text), conversation_id),
                )
            # read inside the transaction: on an error nothing is added
            return self.message(message_id)

    def add_replies(
        self, conversation_id: int, parent_id: int | None, authors: Sequence[Author], shown: bool = True
    ) -> tuple[StoredMessage, ...]:
        """Add an empty running reply below `parent_id` for each of `authors`: all of them or none. The first
        one is put on the path if they are to be `shown`.
        """
        now = time.time()
        with self._database.transaction():
            made = [
                self._database.execute(
                    "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at, "
                    "speaker, speaker_persona) VALUES (?, ?, 'assistant', '', 'running', ?, ?, ?)",
                    (conversation_id, parent_id, now, *author),
                ).lastrowid
                for author in authors
            ]
            ids = [int(number or 0) for number in made]
            if shown and ids:
                self._show(conversation_id, parent_id, ids[0])
            self._touch(conversation_id, now)
            return tuple(map(self.message, ids))

    def checkpoint(self, message_id: int, text: str) -> None:
        """Save the text of a running reply so far, in one small write."""
        self._database.execute(
            "UPDATE messages SET text = ? WHERE id = ? AND state = 'running'", (text, message_id)
        )

    def note_start(self, message_id: int, stats: Mapping[str, Any]) -> None:
        """Record what is known of a reply when it begins, such as the tag that closes the thought that it
        begins in; needed if no end is ever saved.
        """
        self._database.execute(
            "UPDATE messages SET stats = ? WHERE id = ? AND state = 'running'",
            (json.dumps(dict(stats)), message_id),
        )

    def set_text(self, message_id: int, text: str, settled: bool = True) -> None:
        """Save the document of a notebook, whose beginning is its title until the user renames it.

        A document that is not `settled` is about to be written again. It stays in the state "running", which
        the search leaves out, because indexing a long text takes longer than a frame.
        """
        with self._database.transaction():
            state = "complete" if settled else "running"
            self._database.execute(
                "UPDATE messages SET text = ?, state = ? WHERE id = ?", (text, state, message_id)
            )
            self.name_after(message_id)
            self._touch(self.message(message_id).conversation_id, time.time())

    def name_after(self, message_id: int) -> None:
        """Name a notebook after the beginning of its document, unless the user gave it a title."""
        row = self._database.execute(
            "SELECT conversation_id, substr(text, 1, 4000) FROM messages WHERE id = ?", (message_id,)
        ).fetchone()
        if row is not None:
            title = auto_title(str(row[1]))
            self._database.execute(
                "UPDATE conversations SET title = ? WHERE id = ? AND auto_title AND kind = ? AND title <> ?",
                (title, row[0], NOTEBOOK, title),
            )

    def resume(self, message_id: int) -> None:
        """Mark a reply as running again, to continue it."""
        self._database.execute(
            "UPDATE messages SET state = 'running', stats = '{}' WHERE id = ?", (message_id,)
        )

    def finish(
        self, message_id: int, text: str, state: str, stats: Mapping[str, Any], tokens: bytes = b""
    ) -> StoredMessage:
        """Save how a reply ended, with its packed tokens if any. Works for a message deleted in the meantime
        too.
        """
        _check_state(state)
        now = time.time()
        with self._database.transaction():
            self._database.execute(
                "UPDATE messages SET text = ?, state = ?, stats = ? WHERE id = ?",
                (text, state, json.dumps(stats), message_id),
            )
            if tokens:
                self._database.execute(
                    "INSERT OR REPLACE INTO message_tokens (message_id, data) VALUES (?, ?)",
                    (message_id, tokens),
                )
            self._touch(self.message(message_id).conversation_id, now)
            return self.message(message_id)

    def tokens(self, message_id: int) -> bytes:
        """The packed tokens of a reply; empty when none were kept."""
        row = self._database.execute(
            "SELECT data FROM message_tokens WHERE message_id = ?", (message_id,)
        ).fetchone()
        return bytes(row[0]) if row is not None else b""

    def message(self, message_id: int) -> StoredMessage:
        return read_message(self._database, message_id)

    def path(self, conversation_id: int) -> tuple[StoredMessage, ...]:
        """The messages on the shown path, first to last."""
        return self._paths.path(conversation_id)

    def ancestry(self, message_id: int) -> tuple[int, ...]:
        """The ids of a message and of all those above it, whether deleted or not, up to the first."""
        return read_ancestry(self._database, message_id)

    def path_to(self, message_id: int) -> tuple[StoredMessage, ...]:
        """The messages that lead to this one, shown or not, first to last."""
        return read_path_to(self._database, message_id)

    def variants(self, message_id: int) -> tuple[int, ...]:
        """The ids of the message and its present siblings, oldest first."""
        tree = read_tree(self._database, self.message(message_id).conversation_id)
        if message_id not in tree.nodes:
            raise StoreError(_("Message {id} is deleted; undo that before changing it.", id=message_id))
        return tree.variants(message_id)

    def show_variant(self, message_id: int, discarded: Collection[int] = ()) -> None:
        """Put the message and its ancestors on the shown path, with what was last shown below it; delete
        `discarded`, other messages of its conversation, with that.
        """
        with self._database.transaction():
            for number in discarded:
                self._database.execute("UPDATE messages SET deleted = 1 WHERE id = ?", (number,))
            conversation_id = self.message(message_id).conversation_id
            for number, parent in read_unshown(self._database, message_id):
                self._show(conversation_id, parent, number)

    def delete_message(self, message_id: int) -> None:
        """Take the message and everything below it off the path; another variant is shown if there is one."""
        self._database.execute("UPDATE messages SET deleted = 1 WHERE id = ?", (self.message(message_id).id,))

    def undelete_message(self, message_id: int) -> None:
        """Undo `delete_message`: show it again with what followed it."""
        with self._database.transaction():
            message = self.message(message_id)
            self._database.execute("UPDATE messages SET deleted = 0 WHERE id = ?", (message_id,))
            self._show(message.conversation_id, message.parent_id, message_id)

    def edit_message(self, message_id: int, text: str) -> StoredMessage:
        """Add a variant with another text; the old one keeps its text and what follows it."""
        old = self.message(message_id)
        place = old.conversation_id, old.parent_id, old.role
        return self.add_message(*place, text, author=old.author, call=old.call)

    def search(self, query: str, limit: int = 50, before: int | None = None) -> tuple[SearchHit, ...]:
        """Messages that contain every word of `query`, latest first; any query is valid.

        Fast, so it may miss some (`search.py` says which). With `before`, only messages with smaller ids: the
        next page.
        """
        return self._search.find(query, limit, before)

    def search_rest(self, query: str, found: Collection[int] = ()) -> Iterator[tuple[SearchHit, ...]]:
        """All hits except the ids in `found`, likeliest messages first; yields a tuple, often empty, every
        few ms.
        """
        return self._search.scan(query, found)

    def _set(self, conversation_id: int, assignment: str, *values: object) -> None:
        changed = self._database.execute(
            f"UPDATE conversations SET {assignment} WHERE id = ?", (*values, conversation_id)
        ).rowcount
        if not changed:
            raise missing(N_("chat"), conversation_id)

    def _touch(self, conversation_id: int, now: float) -> None:
        self._database.execute("UPDATE conversations SET updated_at = ? WHERE id = ?", (now, conversation_id))

    def _show(self, conversation_id: int, parent_id: int | None, message_id: int) -> None:
        if parent_id is None:
            self._database.execute(
                "UPDATE conversations SET shown_root = ? WHERE id = ?", (message_id, conversation_id)
            )
        else:
            self._database.execute(
                "UPDATE messages SET shown_child = ? WHERE id = ?", (message_id, parent_id)
            )


def _check_state(state: str) -> None:
    if state not in STATES:
        raise ValueError(f"A message cannot be in state {state!r}; it is one of {', '.join(STATES)}.")
