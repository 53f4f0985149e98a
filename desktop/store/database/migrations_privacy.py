"""The migration step of chats that stay on this computer."""

from __future__ import annotations

import sqlite3

__all__ = ["local_only_conversations"]


def local_only_conversations(connection: sqlite3.Connection) -> None:
    """Existing conversations may be sent to servers that the user chooses."""
    connection.execute("ALTER TABLE conversations ADD COLUMN local_only INTEGER NOT NULL DEFAULT 0")
