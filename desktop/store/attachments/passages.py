"""The passages of a long text that match a question best."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice, zip_longest

from desktop.store.attachments.message_format import Attachment, kind_of

__all__ = ["LENGTH", "further", "fused", "kept", "matching", "passages"]

LENGTH = 1000
"""The most characters of a passage: about 250 tokens."""
_ENDS = tuple(
    re.compile(f"(?s:.*){sign}")
    for sign in (r"\n(?=#{1,6} )", r"\n\n+(?=\S)", r"\n\n", r"\n", r"\. ", "。", " ")
)
"""Where a passage may end, the best first: before a heading, or a paragraph or function that begins at the
margin, or else a smaller part.
"""
_HEADING = re.compile(r"^(?:#{1,6} +(\S.*)|\[(Page \d+)\])$", re.MULTILINE)
"""A heading of Markdown, or the mark of a page of a PDF file."""
_FUNCTION = re.compile(
    r"^((?:(?:export|public|private|static|async|pub|inline) +)*"
    r"(?:def|class|function|func|fn|struct|enum|interface|impl|trait|module) +\w.*)$",
    re.MULTILINE,
)
"""The first line of a function or class at the margin."""
_LONGEST_PLACE = 80
_CLOSE = 60
"""Reciprocal ranks are 1 / (this + the rank), so that no single ranking decides by its first places alone."""
_TELLING = 0.7
"""The least score of a passage for a later question: that of one word that a third of the passages have."""
_FEWEST_WORDS = 3
"""Of a later question that passages match by meaning: shorter ones say too little."""
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
"""Thai, Lao, Japanese and Chinese, whose words have no spaces between them."""


def passages(text: str) -> list[str]:
    """The text in pieces, cut where paragraphs, lines, sentences or words end."""
    found, at = list[str](), 0
    while len(text) - at > LENGTH:
        end = at + LENGTH
        for sign in _ENDS:
            place = sign.match(text, at + LENGTH // 2, at + LENGTH)
            if place is not None:
                end = place.end()
                break
        found.append(text[at:end])
        at = end
    return [*found, text[at:]]


def matching(pieces: Sequence[str], question: str, meaning: Sequence[int] = ()) -> list[int]:
    """The numbers of the pieces that have words of a question, those that match best first, and after them
    those beside them. With the numbers in the order of their `meaning`, the best in both orders come first.

    By Okapi BM25, in which rare words count for more; English words without their endings.
    https://www.sqlite.org/fts5.html#the_bm25_function
    """
    found = _by_words(pieces, question)
    if meaning:
        return fused(found, meaning)
    known = set(found)
    beside = dict.fromkeys(number + step for number in found for step in (1, -1))
    return [*found, *(number for number in beside if number not in known and 0 <= number < len(pieces))]


def further(
    files: Sequence[Attachment], question: str, known: str, most: int, meaning: Sequence[Sequence[int]] = ()
) -> tuple[Attachment, ...]:
    """At most `most` passages of whole files for another question, the best of each file in turn: those that
    are not in `known`, which the model reads anyway, and have a word of the question that few others have.
    With their order by `meaning`, for each file, those nearest in meaning belong to them, too.
    """
    split_files = [passages(file.text) for file in files]
    orders = [_by_words(pieces, question, _TELLING) for pieces in split_files]
    if meaning and len(re.findall(r"\w+", _spaced(question))) >= _FEWEST_WORDS:
        orders = [fused(words, near) for words, near in zip(orders, meaning, strict=True)]
    new = [
        islice((number for number in order if _is_new(pieces[number], known)), most)
        for pieces, order in zip(split_files, orders, strict=True)
    ]
    ranks = zip_longest(*new)
    best = [(place, number) for rank in ranks for place, number in enumerate(rank) if number is not None]
    chosen = best[:most]
    return tuple(
        kept(file, split_files[place], numbers)
        for place, file in enumerate(files)
        if (numbers := [number for at, number in chosen if at == place])
    )


def _is_new(piece: str, known: str) -> bool:
    return bool(piece.strip()) and piece.strip() not in known


def fused(*orders: Sequence[int]) -> list[int]:
    """The numbers in several orders in one, the best first, by reciprocal rank fusion (Cormack, Clarke and
    Büttcher 2009, doi:10.1145/1571941.1572114): the sum of 1 / (60 + rank) over the orders that have it.
    """
    scores: dict[int, float] = {}
    for order in orders:
        for rank, number in enumerate(order, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_CLOSE + rank)
    return sorted(scores, key=lambda number: (-scores[number], number))


def _by_words(pieces: Sequence[str], question: str, least: float = 0.0) -> list[int]:
    """The numbers of the pieces that have words of a question, the best first, with a score above `least`."""
    words = dict.fromkeys(re.findall(r"\w+", _spaced(question)))
    if not words:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE pieces USING fts5 (text, tokenize='porter unicode61')")
        index.executemany("INSERT INTO pieces (rowid, text) VALUES (?, ?)", enumerate(map(_spaced, pieces)))
        asked = " OR ".join(f'"{word}"' for word in words)
        rows = index.execute(
            "SELECT rowid FROM pieces WHERE pieces MATCH ? AND rank < ? ORDER BY rank, rowid", (asked, -least)
        )
        return [number for (number,) in rows]


def _gap(place: str = "") -> str:
    """What stands for missing pieces, before one that begins in a place."""
    return f"\n[… {place[:_LONGEST_PLACE]}]\n" if place else "\n[…]\n"


def _spaced(text: str) -> str:
    """Text with spaces between the pairs of characters of scripts that have none between words."""

    def pairs(found: re.Match[str]) -> str:
        run = found[0]
        return f" {' '.join(run[at : at + 2] for at in range(max(1, len(run) - 1)))} "

    return _UNSPACED.sub(pairs, text)


def kept(attachment: Attachment, pieces: Sequence[str], numbers: Sequence[int]) -> Attachment:
    """Only these of its pieces, in their order, with a note that says so. Where something is missing, it
    says under which heading, or in which function, the next piece begins.
    """
    text, before, chosen = "", -1, set(numbers)
    place, places = "", _FUNCTION if kind_of(attachment.name) == "code" else _HEADING
    for number, piece in enumerate(pieces):
        if number in chosen:
            text += (_gap("" if places.match(piece) else place) if number != before + 1 else "") + piece
            before = number
        for found in places.finditer(piece):
            place = found[found.lastindex or 0].strip()
    text += _gap() if before + 1 < len(pieces) else ""
    note = f"{len(numbers):,} of {len(pieces):,} passages"
    return replace(attachment, text=text.strip(), note=note)
