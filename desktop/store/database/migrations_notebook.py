"""The migration step of notebooks: the kind of each conversation."""

from __future__ import annotations

import sqlite3

__all__ = ["conversation_kinds"]


def conversation_kinds(connection: sqlite3.Connection) -> None:
    """Existing conversations are chats; the sidebar's covering index gets the new column."""
    connection.execute("ALTER TABLE conversations ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat'")
    connection.execute("DROP INDEX conversations_listed")
    connection.execute(
        "CREATE INDEX conversations_listed ON conversations (deleted, updated_at DESC, id DESC, title, "
        "folder_id, pinned, deleted_at, kind)"
    )
