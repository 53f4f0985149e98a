"""The migration step of tools: which call a message is the result of."""

from __future__ import annotations

import sqlite3

__all__ = ["tool_calls"]


def tool_calls(connection: sqlite3.Connection) -> None:
    """A column with a constant default, so that it takes milliseconds on a file of any size."""
    connection.execute("ALTER TABLE messages ADD COLUMN tool_call TEXT NOT NULL DEFAULT ''")
