"""Titles that a model wrote. They count as automatic ones: a title of the user's own goes before them."""

from __future__ import annotations

from desktop.store.conversations.messages import first_title
from desktop.store.conversations.records import CHAT
from desktop.store.database.database import Database

__all__ = ["is_untitled", "set_model_title"]


def is_untitled(database: Database, conversation_id: int) -> bool:
    """Whether a chat is still named after its first words; not one that is deleted or unknown."""
    row = database.execute(
        "SELECT title FROM conversations WHERE id = ? AND auto_title AND deleted = 0 AND kind = ?",
        (conversation_id, CHAT),
    ).fetchone()
    return row is not None and row[0] == first_title(database, conversation_id)


def set_model_title(database: Database, conversation_id: int, title: str) -> bool:
    """Name a chat, unless the user has named it or deleted it meanwhile; whether it has the title now."""
    return bool(
        database.execute(
            "UPDATE conversations SET title = ? WHERE id = ? AND auto_title AND deleted = 0 AND kind = ?",
            (title, conversation_id, CHAT),
        ).rowcount
    )
