"""The migration step of participants: who wrote each message, and who takes part in a conversation."""

from __future__ import annotations

import sqlite3

__all__ = ["speakers_and_roles"]


def speakers_and_roles(connection: sqlite3.Connection) -> None:
    """Only columns with constant defaults, so that it takes milliseconds on a file of any size.

    The name is stored as it was at the time; the persona's id is not a foreign key, and finds its picture
    while the persona exists.
    """
    connection.execute("ALTER TABLE messages ADD COLUMN speaker TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE messages ADD COLUMN speaker_persona INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE conversations ADD COLUMN roles TEXT NOT NULL DEFAULT ''")
