"""The direction of each block of Markdown that is exported as a web page: that of its first letter which has
one.

HTML's own `dir="auto"` on a list or table looks past whatever within it has a direction, and on the whole of
a reply it lets the first line decide for all.
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
"""Parts of a table that run as it does: only it and its cells have directions of their own."""
_DIRECTIONS = {"L": "ltr", "R": "rtl", "AL": "rtl"}


def add_directions(markdown: MarkdownIt) -> MarkdownIt:
    """Give every block whose direction is not that of what it stands in the attribute `dir`."""
    markdown.core.ruler.push("directions", _set_directions)
    return markdown


def direction(text: str) -> str:
    """ "ltr" or "rtl"; empty for a text of digits and signs."""
    return next((_DIRECTIONS[kind] for kind in map(bidirectional, text) if kind in _DIRECTIONS), "")


def _set_directions(state: StateCore) -> None:
    """From the end to the beginning, so that each block knows what it holds when it is come to."""
    tokens = state.tokens
    own: dict[int, str] = {}
    # of each block that is open: the direction of the first words seen, the last one read being the first
    inside = [""]
    for place in range(len(tokens) - 1, -1, -1):
        token = tokens[place]
        if token.nesting < 0:
            inside.append("")
        elif token.nesting > 0:
            own[place] = found = inside.pop() if len(inside) > 1 else ""
            inside[-1] = found or inside[-1]
        elif token.type == "inline":
            inside[-1] = _spoken(token.children or []) or inside[-1]
    around = ["ltr"]
    for place, token in enumerate(tokens):
        if token.nesting > 0:
            is_part = token.hidden or token.type in _ROWS
            found = around[-1] if is_part else own.get(place) or around[-1]
            if found != around[-1]:
                token.attrSet("dir", found)
            around.append(found)
        elif token.nesting < 0 and len(around) > 1:
            around.pop()


def _spoken(children: Sequence[Token]) -> str:
    """The direction of words; code and formulas are no words."""
    found = (direction(child.content) for child in children if child.type == "text")
    return next((each for each in found if each), "")
