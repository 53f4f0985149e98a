"""Pictures within a message: the mark that stands for one in its text, and how it is found there again.

A mark is Markdown, so that other programs see what it is::

    ![beach.jpg](picture:0123456789abcdef0123456789abcdef "2048x1536")

The key names the picture in the store (`pictures.py`). Wherever a message is edited, forked, queued or
exported, its marks go with its text, and so do its pictures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from engine.core import picture_words

__all__ = [
    "ADDRESS",
    "MARK",
    "PictureMark",
    "in_words",
    "keys_json",
    "mark_at",
    "mark_of",
    "marks",
    "replaced",
]

ADDRESS = "picture:"
"""The beginning of a picture's address in a mark; the key follows."""
_QUICK = f"]({ADDRESS}"
MARK = re.compile(
    rf"!\[(?P<name>[^\[\]\n]*)\]\({ADDRESS}(?P<key>[0-9a-f]{{32}}) "
    r'"(?P<width>\d{1,5})x(?P<height>\d{1,5})"\)'
)

_LINE = re.compile(MARK.pattern + r"(?:\n+|\Z)")


class PictureMark(NamedTuple):
    """A picture in a text: its file's name, its key in the store, its size in pixels."""

    name: str
    key: str
    width: int
    height: int

    @property
    def text(self) -> str:
        """The mark as it is written."""
        return f'![{self.name}]({ADDRESS}{self.key} "{self.width}x{self.height}")'

    @property
    def words(self) -> str:
        """What stands for the picture where it cannot be shown."""
        return picture_words(self.name)


def mark_of(name: str, key: str, width: int, height: int) -> PictureMark:
    """A mark with a name on one line, without the brackets that would end it."""
    line = " ".join(name.split()).replace("[", "(").replace("]", ")")
    return PictureMark(line[:120], key, width, height)


def _found(match: re.Match[str]) -> PictureMark:
    """The mark that `MARK` matched."""
    return PictureMark(match["name"], match["key"], int(match["width"]), int(match["height"]))


def mark_at(text: str, place: int) -> tuple[PictureMark, int] | None:
    """The mark at a place that is alone on its line, and where the text goes on after the empty lines below
    it; None if there is none.
    """
    match = _LINE.match(text, place)
    return (_found(match), match.end()) if match is not None else None


def marks(text: str) -> tuple[PictureMark, ...]:
    """The marks in a text, in order."""
    return tuple(map(_found, MARK.finditer(text))) if _QUICK in text else ()


def replaced(text: str, words: Callable[[PictureMark], str]) -> str:
    """The text with `words` in the place of each mark."""
    return MARK.sub(lambda match: words(_found(match)), text) if _QUICK in text else text


def in_words(text: str) -> str:
    """The text with the names of its pictures in their places."""
    return replaced(text, lambda mark: mark.words)


def searchable(text: str) -> str:
    """The text, as long as it is, with blanks for all of a mark but the picture's name."""

    def blanked(match: re.Match[str]) -> str:
        name = match["name"]
        return f"  {name}" + " " * (len(match[0]) - len(name) - 2)

    return MARK.sub(blanked, text) if _QUICK in text else text


def keys_json(text: str) -> str:
    """The keys in a text as a JSON list: SQL's `picture_keys`."""
    return json.dumps(list(dict.fromkeys(mark.key for mark in marks(text))))
