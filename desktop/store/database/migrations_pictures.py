"""The migration step of pictures in messages."""

from __future__ import annotations

import sqlite3

__all__ = ["message_pictures"]

_HAS = "instr({0}.text, '](picture:')"
_LINK = "INSERT OR IGNORE INTO message_pictures SELECT new.id, value FROM json_each(picture_keys(new.text))"


def message_pictures(connection: sqlite3.Connection) -> None:
    """The picture files, each once; which messages have them, from the marks in the messages' texts; and the
    pictures of drafts. A picture goes with the last message that had it, unless a draft or a queued message
    has it.
    """
    connection.execute(
        """
        CREATE TABLE pictures (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            media_type TEXT NOT NULL,
            width INTEGER NOT NULL,
            height INTEGER NOT NULL,
            data BLOB NOT NULL
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE message_pictures (
            message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            PRIMARY KEY (message_id, key)
        ) WITHOUT ROWID
        """
    )
    connection.execute("CREATE INDEX message_pictures_key ON message_pictures (key)")
    connection.execute("ALTER TABLE draft_files ADD COLUMN picture TEXT NOT NULL DEFAULT ''")
    old, new = _HAS.format("old"), _HAS.format("new")
    connection.execute(
        f"CREATE TRIGGER message_pictures_insert AFTER INSERT ON messages WHEN {new} BEGIN {_LINK}; END"
    )
    connection.execute(
        f"""
        CREATE TRIGGER message_pictures_update AFTER UPDATE OF text ON messages
        WHEN old.text IS NOT new.text AND ({old} OR {new}) BEGIN
            {_LINK};
            DELETE FROM message_pictures WHERE message_id = new.id
                AND key NOT IN (SELECT value FROM json_each(picture_keys(new.text)));
        END
        """
    )
    connection.execute(
        """
        CREATE TRIGGER pictures_freed AFTER DELETE ON message_pictures
        WHEN NOT EXISTS (SELECT 1 FROM message_pictures WHERE key = old.key)
            AND NOT EXISTS (SELECT 1 FROM draft_files WHERE instr(picture, old.key))
            AND NOT EXISTS (SELECT 1 FROM queued_messages WHERE instr(text, old.key)) BEGIN
            DELETE FROM pictures WHERE key = old.key;
        END
        """
    )
