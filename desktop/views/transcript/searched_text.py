"""The text of a row that is searched, and the line that is shown of a match in a file."""

from __future__ import annotations

import re
from bisect import bisect_left

from desktop.store.attachments.message_format import split
from desktop.views.transcript.rows import Row, RowKind

__all__ = ["SEARCHED", "attached_text", "excerpt", "message_words", "searched_text"]

_NEAR = 60
"""Characters shown on each side of a match in a file."""
_AS_WRITTEN = (RowKind.CODE, RowKind.BUBBLE, RowKind.TOKENS, RowKind.MATH, RowKind.NOTICE)
SEARCHED = (*_AS_WRITTEN, RowKind.TEXT, RowKind.TABLE, RowKind.WHOLE)
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\([^()\s]*\)")
_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,})(?P<words>[^`\n]*)$", re.MULTILINE)
_MARKS = re.compile(
    r"(?=[*~_`#\\])"  # most characters are none of these: to look at one class first is faster
    r"(?:\*{1,3}|~~|(?<!\w)_{1,3}|_{1,3}(?!\w)|`+|^#{1,6} +|\\(?=[!-/:-@\[-`{-~]))",
    re.MULTILINE,
)


def plain(row: Row) -> str:
    """Approximately the text that a row shows: Markdown without its markup."""
    return row.text if row.kind in _AS_WRITTEN else _plain(row.text)


def _plain(text: str) -> str:
    return _MARKS.sub("", _LINK.sub(r"\1", text))


def _without_languages(text: str) -> str:
    """Markdown without the words after the fences that begin blocks of code. They are not shown, and "python"
    would be found in most replies with code, to no avail.
    """
    if "```" not in text:
        return text
    begun = 0

    def cut(fence: re.Match[str]) -> str:
        nonlocal begun
        if not begun:
            begun = len(fence["marks"])
            return fence["marks"]
        if len(fence["marks"]) >= begun and not fence["words"].strip():
            begun = 0
        return fence[0]

    return _FENCE.sub(cut, text)


def message_words(role: str, text: str) -> str:
    """Approximately the text that a message shows when all of it is unfolded."""
    return text if role == "user" else _plain(_without_languages(text))


def searched_text(row: Row) -> str:
    """The text that is searched; empty for rows without any."""
    if row.kind is RowKind.THOUGHT:
        hidden = row.item.text[row.start + len(row.source) : row.until or None]
        return "" if row.open else _plain(hidden)
    if row.kind is RowKind.ATTACHMENT:
        return attached_text(row)
    if row.kind is RowKind.WHOLE:
        return message_words(row.item.role, row.text)
    return plain(row) if row.kind in SEARCHED else ""


def attached_text(row: Row) -> str:
    """The text of the attached file of a row."""
    files, _ = split(row.source)
    return files[0][1].text if files else ""


def excerpt(text: str, query: str, number: int) -> str:
    """The line around match number `number` of `query`, cut to what is near it; the first line without one.

    Matches are counted from 0, regardless of case and without overlaps, as by `str.count`.
    """
    lines, folded, at = text.split("\n"), query.casefold(), 0
    for line in lines:
        words = line.casefold()
        count = words.count(folded)
        if number < count:
            at = _nth(words, folded, number)
            break
        number -= count
    else:
        line = words = lines[0]
    begin, end = (_unfolded(line, words, place) for place in (at, at + len(folded)))
    first, last = max(0, begin - _NEAR), min(len(line), end + _NEAR)
    return f"{'…' if first else ''}{line[first:last].strip()}{'…' if last < len(line) else ''}"


def _nth(text: str, query: str, number: int) -> int:
    at = text.find(query)
    for _ in range(number):
        at = text.find(query, at + len(query))
    return at


def _unfolded(text: str, folded: str, place: int) -> int:
    """The place in a text that became `place` in its case folding, where "ß" is two characters."""
    if len(folded) == len(text):
        return place
    return bisect_left(range(len(text)), place, key=lambda at: len(text[:at].casefold()))
