"""The migration step of notebooks: what kind of conversation each one is."""

from __future__ import annotations

import sqlite3

__all__ = ["conversation_kinds"]


def conversation_kinds(connection: sqlite3.Connection) -> None:
    """Every conversation of before is a chat; the sidebar is still answered from one index alone."""
    connection.execute("ALTER TABLE conversations ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat'")
    connection.execute("DROP INDEX conversations_listed")
    connection.execute(
        "CREATE INDEX conversations_listed ON conversations (deleted, updated_at DESC, id DESC, title, "
        "folder_id, pinned, deleted_at, kind)"
    )
