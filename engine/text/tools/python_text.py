"""Python expressions in brackets, character by character."""

from __future__ import annotations

from collections.abc import Generator

from engine.text.tools.json_text import QUOTES, Chars, Malformed

__all__ = ["in_brackets"]

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ESCAPES = {"\n": "\\n", "\r": "\\r"}


def in_brackets(chars: Chars) -> Generator[None, str, str]:
    """An expression from its bracket "(" up to the ")" that closes it. Raises `Malformed`.

    Line breaks in strings become escapes, which Python requires between single quotes: templates (LFM2.5's)
    and models write them as they are.
    """
    yield from chars.literal("(")
    text, open_ = "(", [")"]
    while open_:
        char = yield from chars.next()
        text += char
        if char in QUOTES:
            text += yield from _string(chars, char)
        elif char in _PAIRS:
            open_.append(_PAIRS[char])
        elif char in ")]}" and open_.pop() != char:
            raise Malformed
    return text


def _string(chars: Chars, quote: str) -> Generator[None, str, str]:
    """The rest of a string after its first quote; three of them may stand around it."""
    more = yield from chars.beginning(quote * 2)
    if len(more) == 1:
        return more
    text, run = more, 0  # the quotes in a row that may end it
    while run <= len(more):
        char = yield from chars.next()
        text += _ESCAPES.get(char, char)
        run = run + 1 if char == quote else 0
        if char == "\\":
            text += yield from chars.next()
    return text
