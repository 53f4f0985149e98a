"""What stands in the composer and is not sent yet, one text for each conversation: it survives the program's end."""

from __future__ import annotations

import time

from desktop.store.database import Database

__all__ = ["LONGEST_DRAFT", "DraftStore"]

LONGEST_DRAFT = 4 << 20
"""Characters of a draft that are kept: pasted text included, far more than a model reads."""


class DraftStore:
    """Reads and writes drafts: one small write, meant for half a second after the last key. Raises `StoreError` as the others do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, conversation_id: int) -> str:
        """The draft, empty for none."""
        row = self._database.execute("SELECT text FROM drafts WHERE conversation_id = ?", (conversation_id,)).fetchone()
        return str(row[0]) if row else ""

    def put(self, conversation_id: int, text: str) -> None:
        """Keep the text; one of nothing but blanks is forgotten. Does not move the conversation in the list."""
        if not text.strip():
            self._database.execute("DELETE FROM drafts WHERE conversation_id = ?", (conversation_id,))
            return
        self._database.execute(
            "INSERT INTO drafts VALUES (?, ?, ?) ON CONFLICT (conversation_id) DO UPDATE SET text = excluded.text, "
            "updated_at = excluded.updated_at",
            (conversation_id, text[:LONGEST_DRAFT], time.time()),
        )

    def conversations(self) -> frozenset[int]:
        """The conversations that have one, for a mark in the sidebar."""
        return frozenset(int(row[0]) for row in self._database.execute("SELECT conversation_id FROM drafts"))
