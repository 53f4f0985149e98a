"""The direction of each block in an exported web page: that of its first letter with a strong direction.

HTML's own `dir="auto"` on a list or table skips any descendant that has a direction, and on a whole reply it
lets the first line decide for all lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from unicodedata import bidirectional

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

__all__ = ["add_directions", "direction"]

_ROWS = ("thead_open", "tbody_open", "tr_open")
"""Parts of a table that share its direction; only the table and its cells have one of their own."""
_DIRECTIONS = {"L": "ltr", "R": "rtl", "AL": "rtl"}


def add_directions(markdown: MarkdownIt) -> MarkdownIt:
    """Set the attribute `dir` on every block whose direction differs from that of its container."""
    markdown.core.ruler.push("directions", _set_directions)
    return markdown


def direction(text: str) -> str:
    """ "ltr" or "rtl"; empty for a text without letters."""
    return next((_DIRECTIONS[kind] for kind in map(bidirectional, text) if kind in _DIRECTIONS), "")


def _set_directions(state: StateCore) -> None:
    """Go backwards, so that the content of each block is known when its start is reached."""
    tokens = state.tokens
    own: dict[int, str] = {}
    # for each open block: the direction of the first words in it seen so far, reading backwards
    inside = [""]
    for place in range(len(tokens) - 1, -1, -1):
        token = tokens[place]
        if token.nesting < 0:
            inside.append("")
        elif token.nesting > 0:
            own[place] = found = inside.pop()
            inside[-1] = found or inside[-1]
        elif token.type == "inline":
            inside[-1] = _words_direction(token.children or []) or inside[-1]
    around = ["ltr"]
    for place, token in enumerate(tokens):
        if token.nesting > 0:
            is_part = token.hidden or token.type in _ROWS
            found = around[-1] if is_part else own.get(place) or around[-1]
            if found != around[-1]:
                token.attrSet("dir", found)
            around.append(found)
        elif token.nesting < 0:
            around.pop()


def _words_direction(children: Sequence[Token]) -> str:
    """The direction of the words; code and formulas do not count."""
    found = (direction(child.content) for child in children if child.type == "text")
    return next((each for each in found if each), "")
