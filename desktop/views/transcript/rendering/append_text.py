"""Text that is appended to a document without parsing all Markdown again, which is enough for most steps of a
growing reply.
"""

from __future__ import annotations

import re

from PySide6.QtGui import QTextCursor, QTextDocument

from desktop.blocks import withholds

__all__ = ["grow", "growth"]

_MEANT = "[^\\W_]|[ ,.;'\"!?\u2026\u2013\u2014\u2018\u2019\u201c\u201d\u3001\u3002\uff0c\uff01\uff1f-]"
"""A letter, a digit or a sign that stands for itself inside a line, whatever surrounds it."""
_WORDS = re.compile(f"(?:{_MEANT})+")
_SIGN = re.compile(_MEANT)
_TEXT = re.compile(r"[^\W\d_]{2}")
"""Two letters: after them nothing can turn the line into a list, a heading or anything else."""
_ADDRESS = ("&", ":", "/", "@", "<", "www")
"""A word with one of these may become a link or a character reference with what follows."""


def growth(before: str, after: str) -> str | None:
    """The text to append to the shown text of `before` to show `after`: two Markdown sources of one block
    each.

    None when the text has not grown, when a part of it is withheld, or when earlier text may look different:
    emphasis that ends, a link, another line. Spaces at the end of a source are not shown (CommonMark 0.31,
    sections 4.8 and 6.2 to 6.9, and GitHub's links).
    """
    added = after[len(before) :]
    shown = before.rstrip(" ")
    if (
        not shown
        or not after.startswith(before)
        or not _WORDS.fullmatch(added)
        or not _SIGN.fullmatch(shown[-1])
        or withholds(before)
    ):
        return None
    word = last_word(shown)
    written = (before[len(shown) :] + added).rstrip(" ")
    met = (word + written.split(" ", 1)[0]).lower()
    if (
        "  " in before[len(shown) :] + added
        or any(sign in met for sign in _ADDRESS)
        or "www" in added.lower()
    ):
        return None
    return written if _TEXT.search(shown[shown.rfind("\n") + 1 :]) else None


def last_word(source: str) -> str:
    """The text after the last space."""
    return source.split()[-1]


def grow(document: QTextDocument, before: str, after: str) -> int:
    """Let `document`, which shows `before`, show `after`, if only words at its end are new.

    Returns the position from which lines may look different, the end of the word before the last one; -1 when
    nothing was done.
    """
    written = growth(before, after)
    if written is None:
        return -1
    word, block = last_word(before), document.lastBlock()
    if not block.text().endswith(word):
        return -1
    cursor = QTextCursor(document)
    cursor.movePosition(QTextCursor.MoveOperation.End)
    start = cursor.position() - len(word.encode("utf-16-le")) // 2 - 1
    cursor.insertText(written)
    return max(block.position(), start)
