"""The migration step of what is written to the model: saved prompts, and messages that wait for the running reply to end."""

from __future__ import annotations

import sqlite3

__all__ = ["prompts_and_queue"]


def prompts_and_queue(connection: sqlite3.Connection) -> None:
    """Two small tables; a message that waits goes with its conversation."""
    connection.execute("CREATE TABLE prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, text TEXT NOT NULL)")
    connection.execute(
        """
        CREATE TABLE queued_messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            text TEXT NOT NULL,
            opening TEXT NOT NULL DEFAULT ''
        )
        """
    )
    connection.execute("CREATE INDEX queued_conversation ON queued_messages (conversation_id)")
