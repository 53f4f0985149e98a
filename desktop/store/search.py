"""Full-text search: any text a person types is a valid query, and every hit is checked against the message itself.

A message is a hit when it contains every word of the query, case and accents aside, parts of words included. The newest
messages are read (`RECENT_COST`); older ones are looked up in the index, which knows words by their beginnings. What is left,
parts inside words of old messages and messages not indexed yet, is found by `scan`, in steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from desktop.store.database import Database
from desktop.store.folding import first_place, fold, places, query_terms, query_words
from desktop.store.records import SearchHit

__all__ = ["find", "scan"]

SNIPPET_BEFORE = 32
SNIPPET_CHARACTERS = 96
RECENT_COST = 300_000
"""How much of the newest messages is read at once, in ASCII characters; others cost `_FOREIGN_COST` each. A few milliseconds."""
RECENT_MESSAGES = 1000
SCAN_COST = 600_000
_FOREIGN_COST = 5
_SAMPLE = 256
_COMMON = 0.04
"""A word in more than this share of messages is not looked up when a rarer one is: its list of ids is too long to merge."""
_ROWS = (
    "SELECT messages.id, conversation_id, title, messages.text, messages.created_at FROM {source} CROSS JOIN conversations "
    "ON conversations.id = conversation_id WHERE messages.deleted = 0 AND conversations.deleted = 0 AND state <> 'running' AND {condition} "
    "ORDER BY {order} DESC"
)
_IN_ORDER = _ROWS.format(source="messages", condition="messages.id < ?", order="messages.id")
_BY_WORD = _ROWS.format(
    source="message_words CROSS JOIN messages ON messages.id = message_words.rowid",
    condition="message_words MATCH ? AND message_words.rowid < ?", order="message_words.rowid",
)  # fmt: skip
_END = (1 << 63) - 1


def find(database: Database, query: str, limit: int, before: int | None = None) -> tuple[SearchHit, ...]:
    """At most `limit` hits in present messages, latest first, with ids under `before`; an empty query finds nothing."""
    words = query_words(query)
    hits: list[SearchHit] = []
    if not words or limit <= 0:
        return ()
    end = _END if before is None else before
    cost = count = 0
    for row in database.execute(_IN_ORDER, (end,)):
        end = int(row[0])
        if (hit := _hit(row, words)) is not None:
            hits.append(hit)
        cost, count = cost + _cost(row[3]), count + 1
        if len(hits) == limit:
            return tuple(hits)
        if cost > RECENT_COST or count == RECENT_MESSAGES:
            break
    else:
        return tuple(hits)
    expression = _expression(database, words)
    for row in database.execute(_BY_WORD, (expression, end)) if expression else ():
        if (hit := _hit(row, words)) is not None:
            hits.append(hit)
            if len(hits) == limit:
                break
    return tuple(hits)


def scan(database: Database, query: str, found: Collection[int] = (), before: int | None = None) -> Iterator[tuple[SearchHit, ...]]:
    """All hits that are not in `found`, by reading every message, latest first: one tuple, often empty, every few milliseconds.

    Nothing is locked between two steps; stop by not asking on.
    """
    words, known = query_words(query), frozenset(found)
    end: int | None = (_END if before is None else before) if words else None
    while end is not None:
        hits, end = _scanned(database, words, end)
        yield tuple(hit for hit in hits if hit.message_id not in known)


def _scanned(database: Database, words: tuple[str, ...], end: int) -> tuple[list[SearchHit], int | None]:
    hits: list[SearchHit] = []
    cost = 0
    for row in database.execute(_IN_ORDER, (end,)):
        if (hit := _hit(row, words)) is not None:
            hits.append(hit)
        cost += _cost(row[3]) + 100
        if cost > SCAN_COST:
            return hits, int(row[0])
    return hits, None


def _expression(database: Database, words: tuple[str, ...]) -> str:
    """The FTS5 query for candidates: tokens that every hit has. Everything is quoted, so that nothing in it is syntax.

    Words that are everywhere are left out when there are others. Empty when there is nothing to look up.
    """
    terms = dict.fromkeys(term for word in words for term in query_terms(word))
    if not terms:
        return ""
    sample = _sample(database)
    shares = {term: sum(_has(text, *term) for text in sample) / max(len(sample), 1) for term in terms}
    rare = [term for term in terms if shares[term] <= _COMMON]
    if rare:
        return " ".join(f'"{term}"*' if begins else f'"{term}"' for term, begins in rare)
    # All are common: as whole words their lists are walked side by side; only one may be merged from beginnings.
    last = min(terms, key=lambda term: shares[term])
    return " ".join(f'"{term}"*' if begins and (term, begins) == last else f'"{term}"' for term, begins in terms)


def _has(tokens: str, term: str, begins: bool) -> bool:
    return (f" {term}" if begins else f" {term} ") in tokens


def _sample(database: Database) -> list[str]:
    """The tokens of messages from all over the library, each text with a blank before and behind every token."""
    from desktop.store.folding import index_text

    last = int(database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
    numbers = ",".join(str(1 + last * place // _SAMPLE) for place in range(_SAMPLE))
    rows = database.execute(f"SELECT substr(text, 1, 4000) FROM messages WHERE id IN ({numbers})")
    return [f" {index_text(row[0])} " for row in rows]


def _cost(text: str) -> int:
    return len(text) if text.isascii() else len(text) * _FOREIGN_COST


def _hit(row: tuple[Any, ...], words: tuple[str, ...]) -> SearchHit | None:
    number, conversation, title, text, created = row
    folded = fold(text)
    if not all(word in folded for word in words):
        return None
    place = first_place(text, words)
    snippet, spans = _snippet(text, words, place)
    return SearchHit(number, conversation, title, snippet, created, spans, place)


def _snippet(text: str, words: tuple[str, ...], place: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """About a hundred characters around `place` on one line, and where the words stand in them."""
    start = max(0, place - SNIPPET_BEFORE)
    piece = " ".join(text[start : start + SNIPPET_CHARACTERS].split())
    shown = ("…" if start else "") + piece + ("…" if start + SNIPPET_CHARACTERS < len(text) else "")
    return shown, places(shown, words)
