"""All conversations and their messages: a tree in SQLite of which one path is shown.

Every change is one short transaction, so that the death of the process loses nothing that a method has
returned from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from desktop.store.conversations.participants import UNNAMED, Author, Cast
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
from desktop.store.conversations.tree import Node, Tree
from desktop.store.database.database import Database, StoreError
from desktop.store.search.search import Search

__all__ = ["Conversation", "ConversationStore", "ConversationSummary", "SearchHit", "StoredMessage"]


class ConversationStore:
    """Reads and writes conversations. Used by the thread that opened the database.

    On opening, replies that a killed process left "running" become "stopped" with their last checkpoint;
    `recovered` is how many. `notices` says what opening the file had to do. Methods raise `StoreError` for an
    id that is not there and for trouble with the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._search = Search(database)
        self.notices = database.notices
        with database.transaction():
            self.recovered = database.execute(
                "UPDATE messages SET state = 'stopped' WHERE state = 'running'"
            ).rowcount

    # -- conversations
    # ------------------------------------------------------------------------------------------------

    def create(
        self, title: str = "", settings: Mapping[str, Mapping[str, Any]] | None = None, kind: str = CHAT
    ) -> Conversation:
        """A new conversation, empty but for the document of a notebook.

        Without a title, its first text will give it one.
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
        """All present (or all deleted) conversations, latest first; the sidebar puts pinned ones and folders
        where they belong.

        With `first` only so many of the latest, and all that are pinned or in folders, whose place is above
        the others.
        """
        latest = "SELECT id FROM conversations WHERE deleted = ?1 ORDER BY updated_at DESC, id DESC LIMIT ?2"
        wanted = "" if first < 0 else f" AND (pinned OR folder_id IS NOT NULL OR id IN ({latest}))"
        rows = self._database.execute(
            "SELECT id, title, updated_at, folder_id, pinned, deleted_at, kind FROM conversations "
            f"WHERE deleted = ?1{wanted} ORDER BY updated_at DESC, id DESC",
            (int(deleted),) if first < 0 else (int(deleted), first),
        ).fetchall()
        return tuple(map(ConversationSummary._make, rows))

    def is_listed(self, conversation_id: int) -> bool:
        """Whether a conversation is there and not thrown away."""
        return (
            self._database.execute(
                "SELECT 1 FROM conversations WHERE id = ? AND deleted = 0", (conversation_id,)
            ).fetchone()
            is not None
        )

    def summary(self, conversation_id: int) -> ConversationSummary:
        """The row of one conversation, deleted or not."""
        row = self._database.execute(
            "SELECT id, title, updated_at, folder_id, pinned, deleted_at, kind FROM conversations WHERE id "
            "= ?",
            (conversation_id,),
        ).fetchone()
        if row is None:
            raise _no_conversation(conversation_id)
        return ConversationSummary._make(row)

    def get(self, conversation_id: int) -> Conversation:
        """One conversation, deleted or not."""
        row = self._database.execute(
            "SELECT id, title, created_at, updated_at, deleted, settings, system_prompt, model_path, "
            "folder_id, pinned, persona_id, inherits_prompt, roles, kind FROM conversations WHERE id = ?",
            (conversation_id,),
        ).fetchone()
        if row is None:
            raise _no_conversation(conversation_id)
        (number, title, created, updated, deleted, settings, prompt, model_path, folder, pinned, persona,
         inherits, cast, kind) = row  # fmt: skip
        return Conversation(
            number, title, created, updated, bool(deleted), json.loads(settings), prompt, model_path, folder,
            bool(pinned), persona, bool(inherits), Cast.read(cast), kind,
        )  # fmt: skip

    def rename(self, conversation_id: int, title: str) -> None:
        """Give it a title; an empty one brings back the automatic title. Does not move it in the list."""
        title = " ".join(title.split())
        self._set(
            conversation_id,
            "title = ?, auto_title = ?",
            title or self._first_title(conversation_id),
            not title,
        )

    def delete(self, conversation_id: int) -> None:
        """Throw it away: out of the list and the search, into the trash (`trash.py`); `restore` brings it
        back.
        """
        self._set(conversation_id, "deleted = 1, deleted_at = ?", time.time())

    def restore(self, conversation_id: int) -> None:
        """Undo `delete`. Raises `StoreError` once it is being deleted for good."""
        if self.get(conversation_id).deleted:
            changed = self._database.execute(
                "UPDATE conversations SET deleted = 0, deleted_at = NULL WHERE id = ? AND deleted = 1",
                (conversation_id,),
            ).rowcount
            if not changed:
                raise StoreError("This conversation is being deleted for good and cannot be brought back.")

    def set_settings(self, conversation_id: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the values that this conversation changed."""
        self._set(conversation_id, "settings = ?", json.dumps(settings))

    def set_system_prompt(self, conversation_id: int, text: str, inherit: bool = True) -> None:
        """Replace the text that goes before all messages; an empty one takes that of the persona or a
        folder, if `inherit`.
        """
        self._set(conversation_id, "system_prompt = ?, inherits_prompt = ?", text, inherit)

    def pin(self, conversation_id: int, pinned: bool = True) -> None:
        """Keep it at the top of the list, or no more."""
        self._set(conversation_id, "pinned = ?", pinned)

    def move(self, conversation_ids: Iterable[int], folder_id: int | None) -> None:
        """Put conversations into a folder, or (None) into none; all of them or, when one is not there,
        none.
        """
        with self._database.transaction():
            if (
                folder_id is not None
                and not self._database.execute("SELECT 1 FROM folders WHERE id = ?", (folder_id,)).fetchone()
            ):
                raise StoreError(
                    f"There is no folder number {folder_id}; it may have been removed by another window."
                )
            for conversation_id in conversation_ids:
                self._set(conversation_id, "folder_id = ?", folder_id)

    def set_persona(self, conversation_id: int, persona_id: int | None) -> None:
        """Who answers here (`personas.py`); None is nobody in particular."""
        self._set(conversation_id, "persona_id = ?", persona_id)

    def set_cast(self, conversation_id: int, cast: Cast) -> None:
        """Who takes part here."""
        self._set(conversation_id, "roles = ?", cast.text())

    def set_model_path(self, conversation_id: int, path: str) -> None:
        """Remember which model answers here."""
        self._set(conversation_id, "model_path = ?", path)

    # -- messages
    # -----------------------------------------------------------------------------------------------------

    def add_message(
        self,
        conversation_id: int,
        parent_id: int | None,
        role: str,
        text: str,
        state: str = "complete",
        author: Author = UNNAMED,
    ) -> StoredMessage:
        """A new message of `author` under `parent_id` (None is the top); it becomes the shown one there."""
        _check_state(state)
        now = time.time()
        with self._database.transaction():
            parent = self.message(parent_id) if parent_id is not None else None
            if parent is not None and parent.conversation_id != conversation_id:
                raise StoreError(
                    f"Message {parent_id} belongs to another conversation than number {conversation_id}."
                )
            cursor = self._database.execute(
                "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at, speaker, "
                "speaker_persona) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (conversation_id, parent_id, role, text, state, now, *author),
            )
            message_id = int(cursor.lastrowid or 0)
            self._show(conversation_id, parent_id, message_id)
            self._touch(conversation_id, now)
            if role == "user":
                self._database.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND auto_title AND title = ''",
                    (auto_title(text), conversation_id),
                )
            # what cannot be read is not written: an error means that nothing was added
            return self.message(message_id)

    def checkpoint(self, message_id: int, text: str) -> None:
        """Save the text so far of a running reply: one small write."""
        self._database.execute(
            "UPDATE messages SET text = ? WHERE id = ? AND state = 'running'", (text, message_id)
        )

    def note_opened(self, message_id: int, opened: str) -> None:
        """Keep at the begin of a running reply what closes the thought that it begins in: it is known even
        if no end is ever saved.
        """
        self._database.execute(
            "UPDATE messages SET stats = ? WHERE id = ? AND state = 'running'",
            (json.dumps({"opened": opened}), message_id),
        )

    def set_text(self, message_id: int, text: str, settled: bool = True) -> None:
        """Save what the user wrote into a notebook's document, which gives the notebook its title until it is
        renamed.

        A document that is not `settled` will soon be written again: it is in the state "running", which no
        search looks at, because bringing a long text into the index takes longer than a frame.
        """
        with self._database.transaction():
            state = "complete" if settled else "running"
            self._database.execute(
                "UPDATE messages SET text = ?, state = ? WHERE id = ?", (text, state, message_id)
            )
            self.name_after(message_id)
            self._touch(self.message(message_id).conversation_id, time.time())

    def name_after(self, message_id: int) -> None:
        """Let a notebook be called as its document begins, unless the user gave it a title."""
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
        """Mark a reply as running again, to be continued."""
        self._database.execute(
            "UPDATE messages SET state = 'running', stats = '{}' WHERE id = ?", (message_id,)
        )

    def finish(
        self, message_id: int, text: str, state: str, stats: Mapping[str, Any], tokens: bytes = b""
    ) -> StoredMessage:
        """Save how a reply ended, with its packed tokens if there are any; also for a message deleted
        meanwhile.
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
        """The packed tokens of a reply; empty where none were kept."""
        row = self._database.execute(
            "SELECT data FROM message_tokens WHERE message_id = ?", (message_id,)
        ).fetchone()
        return bytes(row[0]) if row is not None else b""

    def message(self, message_id: int) -> StoredMessage:
        """One message, deleted or not."""
        row = self._database.execute(
            f"SELECT {_COLUMNS} FROM messages WHERE id = ?", (message_id,)
        ).fetchone()
        if row is None:
            raise StoreError(
                f"There is no message number {message_id}; it may have been removed by another window."
            )
        beside = self._database.execute(
            "SELECT id FROM messages WHERE conversation_id = ? AND parent_id IS ? AND (deleted = 0 OR id = "
            "?) ORDER BY id",
            (row[1], row[2], message_id),
        )
        return _message(row, tuple(int(found[0]) for found in beside))

    def path(self, conversation_id: int) -> tuple[StoredMessage, ...]:
        """The shown messages from the first to the last."""
        tree = self._tree(conversation_id)
        ids = tree.path()
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        ).fetchall()
        by_id = {int(row[0]): row for row in rows}
        return tuple(_message(by_id[message_id], tree.variants(message_id)) for message_id in ids)

    def variants(self, message_id: int) -> tuple[int, ...]:
        """The ids of the message and of its present siblings, oldest first."""
        tree = self._tree(self.message(message_id).conversation_id)
        if message_id not in tree.nodes:
            raise StoreError(f"Message {message_id} is deleted; undo that before changing it.")
        return tree.variants(message_id)

    def show_variant(self, message_id: int) -> None:
        """Put the message, and what leads to it, on the shown path; what was shown below it comes back
        with it.
        """
        with self._database.transaction():
            message: StoredMessage | None = self.message(message_id)
            while message is not None:
                self._show(message.conversation_id, message.parent_id, message.id)
                message = self.message(message.parent_id) if message.parent_id is not None else None

    def delete_message(self, message_id: int) -> None:
        """Take the message and all that follows under it off the path; another variant is shown if there
        is one.
        """
        self._database.execute("UPDATE messages SET deleted = 1 WHERE id = ?", (self.message(message_id).id,))

    def undelete_message(self, message_id: int) -> None:
        """Undo `delete_message`: it is shown again, with what followed."""
        with self._database.transaction():
            message = self.message(message_id)
            self._database.execute("UPDATE messages SET deleted = 0 WHERE id = ?", (message_id,))
            self._show(message.conversation_id, message.parent_id, message_id)

    def edit_message(self, message_id: int, text: str) -> StoredMessage:
        """A new variant beside the message with another text; the old one keeps its text and what follows
        it.
        """
        old = self.message(message_id)
        return self.add_message(old.conversation_id, old.parent_id, old.role, text, author=old.author)

    def search(self, query: str, limit: int = 50, before: int | None = None) -> tuple[SearchHit, ...]:
        """Messages that contain all words of `query`, latest first; every query is valid.

        Quick: see `search.py` for what it may miss.

        `before`: only messages with smaller ids, to go on behind the last hit.
        """
        return self._search.find(query, limit, before)

    def search_rest(
        self, query: str, found: Collection[int] = (), before: int | None = None
    ) -> Iterator[tuple[SearchHit, ...]]:
        """All hits but those of the ids `found`, the likeliest messages first, then every one: a tuple, often
        empty, every few milliseconds.
        """
        return self._search.scan(query, found, before)

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _set(self, conversation_id: int, assignment: str, *values: object) -> None:
        changed = self._database.execute(
            f"UPDATE conversations SET {assignment} WHERE id = ?", (*values, conversation_id)
        ).rowcount
        if not changed:
            raise _no_conversation(conversation_id)

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

    def _first_title(self, conversation_id: int) -> str:
        row = self._database.execute(
            "SELECT text FROM messages JOIN conversations ON conversations.id = conversation_id WHERE "
            "conversation_id = ? AND (role = 'user' OR kind = ?) AND messages.deleted = 0 ORDER BY "
            "messages.id LIMIT 1",
            (conversation_id, NOTEBOOK),
        ).fetchone()
        return auto_title(str(row[0])) if row else ""

    def _tree(self, conversation_id: int) -> Tree:
        row = self._database.execute(
            "SELECT shown_root FROM conversations WHERE id = ?", (conversation_id,)
        ).fetchone()
        nodes = self._database.execute(
            "SELECT id, parent_id, shown_child FROM messages WHERE conversation_id = ? AND deleted = 0 "
            "ORDER BY id",
            (conversation_id,),
        )
        return Tree.build((Node(*found) for found in nodes), row[0] if row else None)


_COLUMNS = "id, conversation_id, parent_id, role, text, state, created_at, stats, speaker, speaker_persona"


def _message(row: tuple[Any, ...], variants: tuple[int, ...]) -> StoredMessage:
    number, conversation, parent, role, text, state, created, stats, author, persona = row
    place = variants.index(number)
    return StoredMessage(
        number, conversation, parent, role, text, state, created, json.loads(stats), place, len(variants),
        Author(author, persona),
    )  # fmt: skip


def _no_conversation(conversation_id: int) -> StoreError:
    return StoreError(
        f"There is no conversation number {conversation_id}; it may have been removed by another window."
    )


def _check_state(state: str) -> None:
    if state not in STATES:
        raise ValueError(f"A message cannot be in state {state!r}; it is one of {', '.join(STATES)}.")
