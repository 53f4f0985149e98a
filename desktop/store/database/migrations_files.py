"""The migration step of the whole texts of trimmed files."""

from __future__ import annotations

import sqlite3

__all__ = ["whole_texts"]


def whole_texts(connection: sqlite3.Connection) -> None:
    """The whole text of each file of which a message has only a part: for later questions in that chat."""
    connection.execute(
        """
        CREATE TABLE whole_texts (
            id INTEGER PRIMARY KEY,
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            name TEXT NOT NULL,
            key TEXT NOT NULL,
            data BLOB NOT NULL
        )
        """
    )
    connection.execute("CREATE UNIQUE INDEX whole_texts_key ON whole_texts (conversation_id, key)")
