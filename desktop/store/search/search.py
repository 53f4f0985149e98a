"""Full-text search: any text is a valid query, and every hit is checked against the message itself.

A message is a hit if it contains every word of the query, ignoring case and accents, even inside words. The
newest messages are read; older ones are looked up in the index, which finds words by their beginnings. The
rest (inside the words of old messages, and messages not indexed yet) is found by `Search.scan`, in steps.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from desktop.blocks.plain_words import plain_words
from desktop.store.attachments.picture_marks import searchable
from desktop.store.conversations.records import SearchHit
from desktop.store.conversations.tree import Node, Tree
from desktop.store.database.database import Database
from desktop.store.search.folding import first_place, fold, index_text, places, query_terms, query_words

__all__ = ["Search"]

SNIPPET_BEFORE = 32
SNIPPET_CHARACTERS = 96
_AROUND = 600
"""Characters on each side of a hit in which a mark is looked for with its pair."""
RECENT_COST = 150_000
"""Characters of the newest messages to read at once (plus `_ROW_COST` for each message): a few milliseconds.
"""
CHECK_COST = 200_000
"""Characters of the index's candidates to read at once: words may occur in many messages but rarely side by
side.
"""
SCAN_COST = 60_000
"""Characters to read in one step of a scan: 3 to 6 ms, less than half a frame."""
_ROW_COST = 200
_BATCH = 50
_SAMPLE, _SAMPLE_CHARACTERS = 200, 2000
_COMMON, _USUAL = 20_000, 12_000
"""Approximate number of messages with a word. Lists of ids longer than `_COMMON` are too long to merge for
one beginning.
"""
_PRESENT = "messages.deleted = 0 AND conversations.deleted = 0 AND state <> 'running'"
_COLUMNS = "messages.id, conversation_id, title, messages.text, messages.created_at, holes"
_JOIN = "CROSS JOIN conversations ON conversations.id = conversation_id"
_IN_ORDER = (
    f"SELECT {_COLUMNS} FROM messages {_JOIN} WHERE {_PRESENT} AND messages.id < ? ORDER BY messages.id "
    f"DESC LIMIT {_BATCH}"
)
_OF_IDS = (
    f"SELECT {_COLUMNS} FROM messages {_JOIN} WHERE {_PRESENT} AND messages.id IN (SELECT value FROM "
    "json_each(?)) ORDER BY messages.id DESC"
)
_BY_WORD = (
    f"SELECT {_COLUMNS} FROM message_words CROSS JOIN messages ON messages.id = message_words.rowid {_JOIN} "
    f"WHERE {_PRESENT} AND message_words MATCH ? AND message_words.rowid < ? ORDER BY message_words.rowid "
    "DESC"
)
_LISTED = "SELECT rowid FROM message_words WHERE message_words MATCH ? AND rowid >= ? AND rowid < ?"
_READ, _LIST, _RANGE = 60, 4000, 10_000
"""Messages read, ids taken from a list, and ids examined in one step."""
_END = (1 << 63) - 1

Row = tuple[Any, ...]


class Search:
    """Searches the messages of one database, and remembers which words are common.

    Used by the database's thread.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sample: tuple[int, list[str]] = (-1, [])

    def find(self, query: str, limit: int, before: int | None = None) -> tuple[SearchHit, ...]:
        """At most `limit` hits in present messages, latest first, with ids below `before`; an empty query
        finds nothing.

        Fast however many conversations there are, so it may miss some; `scan` finds the others.
        """
        words = query_words(query)
        hits: list[SearchHit] = []
        if not words or limit <= 0:
            return ()
        end: int | None = _END if before is None else before
        cost = 0
        while end is not None and cost < RECENT_COST:
            rows = self._database.execute(_IN_ORDER, (end,)).fetchall()
            hits += self._hits(rows, words)
            if len(hits) >= limit:
                return tuple(hits[:limit])
            cost += _cost(rows)
            end = int(rows[-1][0]) if len(rows) == _BATCH else None
        expression = self._expression(words) if end is not None else ""
        if expression:
            found = self._database.execute(_BY_WORD, (expression, end))
            cost = 0
            while len(hits) < limit and cost < CHECK_COST and (rows := found.fetchmany(_BATCH)):
                hits += self._hits(rows, words)
                cost += _cost(rows)
        return tuple(hits[:limit])

    def scan(self, query: str, found: Collection[int] = ()) -> Iterator[tuple[SearchHit, ...]]:
        """All hits that are not in `found`: yields a tuple, often empty, every few milliseconds.

        First what the index offers, latest first, then every message, latest first. Nothing is locked between
        two steps, and the caller may stop at any time.
        """
        words, known = query_words(query), set(found)
        if not words:
            return
        for rows in self._everything(words):
            hits = self._hits((row for row in rows if row[0] not in known), words)
            known.update(hit.message_id for hit in hits)
            yield tuple(hits)

    def _everything(self, words: tuple[str, ...]) -> Iterator[list[Row]]:
        expression, end = self._expression(words), _END
        for ids in self._listed(expression, end) if expression else ():
            for place in range(0, len(ids), _READ):
                yield self._database.execute(_OF_IDS, (json.dumps(ids[place : place + _READ]),)).fetchall()
            yield []
        gathered: list[Row] = []
        while True:
            rows = self._database.execute(_IN_ORDER, (end,)).fetchall()
            gathered += rows
            if len(rows) < _BATCH:
                yield gathered
                return
            end = int(rows[-1][0])
            if _cost(gathered) > SCAN_COST:
                yield gathered
                gathered = []

    def _listed(self, expression: str, end: int) -> Iterator[list[int]]:
        """The ids that the index offers, latest first, in batches of what takes a few milliseconds to find.

        A query for beginnings is merged into one list, so it runs once; whole words are read range by range.
        """
        if "*" in expression:
            found = self._database.execute(f"{_LISTED} ORDER BY rowid DESC", (expression, 0, end))
            ids: list[int] = []
            while rows := found.fetchmany(_LIST):
                ids += [row[0] for row in rows]
                yield []
            yield ids
            return
        last = int(self._database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
        end = min(end, last + 1)
        while end > 0:
            low = max(0, end - _RANGE)
            yield [
                row[0]
                for row in self._database.execute(
                    f"{_LISTED} ORDER BY rowid DESC", (expression, low, end)
                ).fetchall()
            ]
            end = low

    def _expression(self, words: tuple[str, ...]) -> str:
        """The FTS5 query for candidates; empty if there is nothing to look up. Everything is quoted.

        A word is looked up by its beginning unless that is too common. Otherwise it is looked up as a whole
        word, except for the last one, which is probably still being typed and is left out if there are
        others.
        """
        terms = dict.fromkeys(term for word in words for term in query_terms(word))
        last = next(reversed(query_terms(words[-1])), None)
        counts = {term: self._count(*term) for term in terms}
        chosen: list[str] = []
        for term, begins in terms:
            is_last = (term, begins) == last
            if begins and counts[term, begins] > (_COMMON if is_last else _USUAL):
                if not is_last:
                    chosen.append(f'"{term}"')
            else:
                chosen.append(f'"{term}"*' if begins else f'"{term}"')
        if not chosen and last is not None:
            # all are common: merging beginnings would take longer than reading the newest messages
            chosen = [f'"{last[0]}"']
        return " ".join(chosen)

    def _count(self, term: str, begins: bool) -> float:
        """The approximate number of messages with the term, from a sample of them."""
        last = int(self._database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
        taken, sample = self._sample
        if taken < 0 or last > taken + taken // 8 + 1000:
            numbers = json.dumps([1 + last * place // _SAMPLE for place in range(_SAMPLE)])
            sql = (
                f"SELECT substr(text, 1, {_SAMPLE_CHARACTERS}) FROM messages WHERE id IN (SELECT value FROM "
                "json_each(?))"
            )
            sample = [f" {index_text(row[0])} " for row in self._database.execute(sql, (numbers,)).fetchall()]
            self._sample = (last, sample)
        pattern = f" {term}" if begins else f" {term} "
        return sum(pattern in tokens for tokens in sample) / max(len(sample), 1) * last

    def _hits(self, rows: Iterable[Row], words: tuple[str, ...]) -> list[SearchHit]:
        """The rows that contain the words and have nothing deleted above them."""
        found = []
        for row in rows:
            row = (*row[:3], searchable(row[3]), *row[4:])
            folded = fold(row[3])
            if all(word in folded for word in words):
                found.append(row)
        if not found:
            return []
        # `holes` is known for all conversations once everything is indexed
        indexed = self._database.execute("SELECT low FROM search_state").fetchone()[0] == 0
        doubtful = [row[0] for row in found if row[5] or not indexed]
        tree = self._above(doubtful) if doubtful else Tree()
        gone = {number for number in doubtful if not tree.reachable(number)}
        return [_hit(row, words) for row in found if row[0] not in gone]

    def _above(self, ids: list[int]) -> Tree:
        """The messages and their ancestors, up to a deleted one."""
        rows = self._database.execute(
            "WITH RECURSIVE up (id) AS (SELECT value FROM json_each(?) UNION SELECT parent_id FROM up JOIN "
            "messages USING (id) WHERE parent_id IS NOT NULL) SELECT id, parent_id, deleted FROM up JOIN "
            "messages USING (id) ORDER BY id",
            (json.dumps(ids),),
        ).fetchall()
        return Tree.build(
            (Node(number, parent, None) for number, parent, deleted in rows if not deleted), None
        )


def _cost(rows: list[Row]) -> int:
    return sum(len(row[3]) + _ROW_COST for row in rows)


def _hit(row: Row, words: tuple[str, ...]) -> SearchHit:
    number, conversation, title, text, created, _ = row
    place = first_place(text, words)
    shown = _snippet(text, place, words)
    return SearchHit(number, conversation, title, shown, created, places(shown, words), place)


def _snippet(text: str, place: int, words: tuple[str, ...]) -> str:
    """What stands around a place of a text, on one line, without marks that were not asked for."""
    begin, end = max(0, place - _AROUND), place + _AROUND
    near = plain_words(text[begin:end])
    at = first_place(near, words)
    if not any(word in fold(near) for word in words):  # they are marks
        near, at = text[begin:end], place - begin
    start = max(0, at - SNIPPET_BEFORE)
    piece = " ".join(near[start : start + SNIPPET_CHARACTERS].split())
    more = end < len(text) or start + SNIPPET_CHARACTERS < len(near)
    return ("…" if begin or start else "") + piece + ("…" if more else "")
