"""The two stores: conversations on disk, and temporary ones in memory that the user may keep."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

from desktop.store.attachments.picture_marks import marks
from desktop.store.attachments.pictures import PictureStore
from desktop.store.attachments.whole_texts import WholeTextStore
from desktop.store.conversations.conversations import Conversation, ConversationStore
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database, StoreError
from desktop.store.provenance.provenance_store import ProvenanceStore

__all__ = ["FIRST_TEMPORARY", "ConversationStores"]

FIRST_TEMPORARY = 1 << 30
"""Ids of temporary conversations and messages start here: no file gets that far, and a C int holds them."""


class ConversationStores:
    """A `ConversationStore` for kept conversations and one for temporary ones; the id tells which.

    Used by one thread.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.kept = ConversationStore(database)

    @cached_property
    def _memory(self) -> Database:
        found = Database(MEMORY)
        found.execute("PRAGMA temp_store = MEMORY")
        found.execute("PRAGMA foreign_keys = OFF")  # folders and personas are in the other database
        for table in ("conversations", "messages"):
            found.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, FIRST_TEMPORARY - 1)
            )
        return found

    @cached_property
    def temporary(self) -> ConversationStore:
        """The store of temporary conversations; created with the first of them."""
        return ConversationStore(self._memory)

    def of(self, number: int) -> ConversationStore:
        """The store that has the conversation or message with this id."""
        return self.temporary if number >= FIRST_TEMPORARY else self.kept

    def database_of(self, number: int) -> Database:
        """The database that has the conversation or message with this id."""
        return self._memory if number >= FIRST_TEMPORARY else self.database

    def provenance(self, message_id: int) -> ProvenanceStore:
        """The provenance of the message's store."""
        return ProvenanceStore(self.database_of(message_id))

    def forget(self, conversation_id: int) -> None:
        """Drop a temporary conversation with all its messages."""
        with self._memory.transaction():
            for table in ("message_tokens", "message_origins", "message_pictures"):
                self._memory.execute(
                    f"DELETE FROM {table} WHERE message_id IN (SELECT id FROM messages WHERE "
                    "conversation_id = ?)",
                    (conversation_id,),
                )
            for table, column in (
                ("messages", "conversation_id"),
                ("drafts", "conversation_id"),
                ("whole_texts", "conversation_id"),
                ("conversations", "id"),
            ):
                self._memory.execute(f"DELETE FROM {table} WHERE {column} = ?", (conversation_id,))

    def keep(self, conversation_id: int) -> Conversation:
        """Move a temporary conversation, with all variants and tokens, to the disk. Not while a reply runs in
        it.

        Raises `StoreError` (`DiskFull` and others) on failure; the temporary conversation is then still
        there.
        """
        found = self.temporary.get(conversation_id)
        new: dict[int, int] = {}
        with self.database.transaction():
            made = self._copy("conversations", conversation_id, {})
            rows = self._memory.execute(
                "SELECT id, parent_id, shown_child FROM messages WHERE conversation_id = ? ORDER BY id",
                (conversation_id,),
            ).fetchall()
            for number, parent, _ in rows:
                new[number] = self._copy(
                    "messages", number, {"conversation_id": made, "parent_id": new.get(parent)}
                )
                pictures = marks(self.temporary.message(number).text)
                PictureStore(self._memory).copy_to(self.database, (picture.key for picture in pictures))
                tokens = self.temporary.tokens(number)
                if tokens:
                    self.database.execute("INSERT INTO message_tokens VALUES (?, ?)", (new[number], tokens))
            for number, _, child in rows:
                self.database.execute(
                    "UPDATE messages SET shown_child = ? WHERE id = ?", (new.get(child), new[number])
                )
            WholeTextStore(self._memory).copy_to(self.database, conversation_id, made)
            root = self._memory.execute(
                "SELECT shown_root FROM conversations WHERE id = ?", (conversation_id,)
            ).fetchone()[0]
            self.database.execute(
                "UPDATE conversations SET shown_root = ? WHERE id = ?", (new.get(root), made)
            )
        with contextlib.suppress(StoreError):  # the conversation itself is safe
            for number, copy in new.items():
                provenance = self.provenance(number).load(number)
                if provenance is not None:
                    self.provenance(copy).save(copy, provenance)
        self.forget(found.id)
        return self.kept.get(made)

    def close(self) -> None:
        """Discard all temporary conversations."""
        if "_memory" in self.__dict__:
            self._memory.close()

    def _copy(self, table: str, number: int, changed: dict[str, Any]) -> int:
        cursor = self._memory.execute(f"SELECT * FROM {table} WHERE id = ?", (number,))
        names = [str(column[0]) for column in cursor.description]
        values = {**dict(zip(names, cursor.fetchone(), strict=True)), **changed}
        del values["id"]
        marks = ", ".join("?" * len(values))
        made = self.database.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )
        return int(made.lastrowid or 0)
