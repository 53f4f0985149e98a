"""The migration steps of the composer: saved prompts, queued messages, and the other parts of a draft."""

from __future__ import annotations

import sqlite3

__all__ = ["draft_openings_and_files", "prompts_and_queue"]


def prompts_and_queue(connection: sqlite3.Connection) -> None:
    """Two small tables; a queued message is deleted with its conversation."""
    connection.execute(
        "CREATE TABLE prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, text TEXT NOT NULL)"
    )
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


def draft_openings_and_files(connection: sqlite3.Connection) -> None:
    """How the reply to a draft should begin, and its files, in a table written only on changes."""
    connection.execute("ALTER TABLE drafts ADD COLUMN opening TEXT NOT NULL DEFAULT ''")
    connection.execute(
        """
        CREATE TABLE draft_files (
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            place INTEGER NOT NULL,
            name TEXT NOT NULL,
            text TEXT NOT NULL,
            note TEXT NOT NULL,
            PRIMARY KEY (conversation_id, place)
        )
        """
    )
