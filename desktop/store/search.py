"""Full-text search: any text a person types becomes a valid query over the trigram index."""

from __future__ import annotations

from desktop.store.database import Database
from desktop.store.records import SearchHit

__all__ = ["find"]

TRIGRAM = 3
"""Words shorter than this cannot be looked up in a trigram index and are compared directly."""
SNIPPET_BEFORE = 32
SNIPPET_CHARACTERS = 96


def find(database: Database, query: str, limit: int) -> tuple[SearchHit, ...]:
    """Hits in present messages of present conversations that contain every word of `query`, latest first.

    Words are quoted, so that nothing in them is FTS5 syntax. An empty query finds nothing.
    """
    words = [word for word in query.replace("\0", " ").split() if word]
    if not words or limit <= 0:
        return ()
    long = [word for word in words if len(word) >= TRIGRAM]
    short = [word for word in words if len(word) < TRIGRAM]
    conditions = ["messages.deleted = 0", "conversations.deleted = 0"]
    values: list[object] = []
    if long:
        conditions.append("messages.id IN (SELECT rowid FROM message_search WHERE message_search MATCH ?)")
        values.append(" ".join('"' + word.replace('"', '""') + '"' for word in long))
    for word in short:
        conditions.append("messages.text LIKE ? ESCAPE '\\'")
        values.append("%" + word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%")
    rows = database.execute(
        "SELECT messages.id, conversation_id, title, text, messages.created_at FROM messages JOIN conversations "
        f"ON conversations.id = conversation_id WHERE {' AND '.join(conditions)} ORDER BY messages.id DESC LIMIT ?",
        (*values, limit),
    )
    return tuple(SearchHit(row[0], row[1], row[2], _snippet(row[3], words), row[4]) for row in rows)


def _snippet(text: str, words: list[str]) -> str:
    """About a hundred characters around the first word found, on one line."""
    lowered = text.lower()
    places = [place for word in words if (place := lowered.find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_BEFORE)
    piece = " ".join(text[start : start + SNIPPET_CHARACTERS].split())
    return ("…" if start else "") + piece + ("…" if start + SNIPPET_CHARACTERS < len(text) else "")
