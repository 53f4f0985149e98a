"""Texts from files, made fit for a terminal and for a window: nothing in them can move a cursor, turn a line
round or fake one.

Names of files, tensors and models, licences, and the errors of templates are written by strangers.
"""

from __future__ import annotations

import re

__all__ = ["json_text", "one_line", "printable"]

_CONTROL = r"\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_HIDDEN = r"\u061c\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
"""Marks that change the direction of text or that nobody sees, and halves of UTF-16 pairs, which no output
can write.
"""
_BLANKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_UNFIT = re.compile(f"[{_CONTROL}{_HIDDEN}]")
_UNFIT_LINES = re.compile(f"[\v\f\x85\u2028\u2029{_CONTROL}{_HIDDEN}]|\r(?!\n)")
_LONGEST = 2000


def one_line(text: str) -> str:
    r"""`text` as one line of at most 2,000 characters: line ends and tabs are spaces, control characters,
    marks of direction and characters that nobody sees are written as their numbers (`\u001b`).
    """
    text = _shortened(text)
    return (
        text
        if text.isascii() and text.isprintable()
        else _shortened(_UNFIT.sub(_number, _BLANKS.sub(" ", text)))
    )


def printable(text: str) -> str:
    """The same for a text of many lines, of any length: line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _UNFIT_LINES.sub(_number, text)


def json_text(text: str) -> str:
    """JSON with the same characters written as JSON's own numbers: the same value."""
    return _UNFIT_LINES.sub(_number, text)


def _shortened(text: str) -> str:
    """Without its middle, which says least, where it is too long."""
    half = _LONGEST // 2 - 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def _number(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
