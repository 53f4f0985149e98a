"""The passages of a long text that match a question best."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from desktop.store.attachments.message_format import Attachment

__all__ = ["LENGTH", "kept", "matching", "passages"]

LENGTH = 1000
"""The most characters of a passage: about 250 tokens."""
_ENDS = ("\n\n", "\n", ". ", "。", " ")
"""Where a passage may end, the best first."""
_GAP = "\n[…]\n"
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
"""Thai, Lao, Japanese and Chinese, whose words have no spaces between them."""


def passages(text: str) -> list[str]:
    """The text in pieces, cut where paragraphs, lines, sentences or words end."""
    found, at = list[str](), 0
    while len(text) - at > LENGTH:
        end = at + LENGTH
        for sign in _ENDS:
            place = text.rfind(sign, at + LENGTH // 2, at + LENGTH)
            if place >= 0:
                end = place + len(sign)
                break
        found.append(text[at:end])
        at = end
    return [*found, text[at:]]


def matching(pieces: Sequence[str], question: str) -> list[int]:
    """The numbers of the pieces that have words of a question, those that match best first, and after them
    those beside them.

    By Okapi BM25, in which rare words count for more; English words without their endings.
    https://www.sqlite.org/fts5.html#the_bm25_function
    """
    words = dict.fromkeys(re.findall(r"\w+", _spaced(question)))
    if not words:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE pieces USING fts5 (text, tokenize='porter unicode61')")
        index.executemany("INSERT INTO pieces (rowid, text) VALUES (?, ?)", enumerate(map(_spaced, pieces)))
        asked = " OR ".join(f'"{word}"' for word in words)
        rows = index.execute("SELECT rowid FROM pieces WHERE pieces MATCH ? ORDER BY rank, rowid", (asked,))
        found = dict.fromkeys(number for (number,) in rows)
    beside = dict.fromkeys(number + step for number in found for step in (1, -1))
    return [*found, *(number for number in beside if number not in found and 0 <= number < len(pieces))]


def _spaced(text: str) -> str:
    """Text with spaces between the pairs of characters of scripts that have none between words."""

    def pairs(found: re.Match[str]) -> str:
        run = found[0]
        return f" {' '.join(run[at : at + 2] for at in range(max(1, len(run) - 1)))} "

    return _UNSPACED.sub(pairs, text)


def kept(attachment: Attachment, pieces: Sequence[str], numbers: Sequence[int]) -> Attachment:
    """Only these of its pieces, in their order, with a note that says so."""
    text, before = "", -1
    for number in sorted(numbers):
        text += (_GAP if number != before + 1 else "") + pieces[number]
        before = number
    text += _GAP if before + 1 < len(pieces) else ""
    note = f"{len(numbers):,} of {len(pieces):,} passages"
    return replace(attachment, text=text.strip(), note=note)
