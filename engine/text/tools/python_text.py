"""Python expressions in brackets, character by character."""

from __future__ import annotations

from collections.abc import Generator

from engine.text.tools.json_text import BLANKS, QUOTES, Chars, Malformed

__all__ = ["in_brackets"]

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_AFTER_STRINGS = ",:)]}"
_ESCAPES = {"\n": "\\n", "\r": "\\r"}


def in_brackets(chars: Chars) -> Generator[None, str, str]:
    """An expression from its bracket "(" up to the ")" that closes it. Raises `Malformed`.

    Line breaks in strings become escapes, which Python requires between single quotes, and so do quotes that
    end no string, as nothing follows them that may: templates (LFM2.5's) and models write both as they are.
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
        if (yield from _ends(chars)):
            return more
        chars.back(more)
        more = ""
    text, run = more, 0  # the quotes in a row that may end it
    while run <= len(more):
        char = yield from chars.next()
        if char == quote and not more and not (yield from _ends(chars)):
            char = "\\" + quote
        text += _ESCAPES.get(char, char)
        run = run + 1 if char == quote else 0
        if char == "\\":
            text += yield from chars.next()
    return text


def _ends(chars: Chars) -> Generator[None, str, bool]:
    """Whether what follows a quote may follow a string: a separator, a bracket, or, after white space,
    another string. Nothing has been read.
    """
    blanks, char = "", (yield from chars.next())
    while char in BLANKS:
        blanks += char
        char = yield from chars.next()
    chars.back(blanks + char)
    return char in _AFTER_STRINGS or bool(blanks and char in QUOTES)
