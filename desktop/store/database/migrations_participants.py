"""The migration step of named roles: who said each message, and who takes part in a conversation."""

from __future__ import annotations

import sqlite3

__all__ = ["speakers_and_roles"]


def speakers_and_roles(connection: sqlite3.Connection) -> None:
    """Columns with constant defaults only, so that it takes milliseconds on a file of any size.

    The name is kept as it was; the persona's number, no reference, finds its picture as long as there is one.
    """
    connection.execute("ALTER TABLE messages ADD COLUMN speaker TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE messages ADD COLUMN speaker_persona INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE conversations ADD COLUMN roles TEXT NOT NULL DEFAULT ''")
