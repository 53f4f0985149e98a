"""Places where a long path, address or number may be broken into lines."""

from __future__ import annotations

__all__ = ["breakable"]

_LONG = 40
_PIECE = 8


def breakable(text: str) -> str:
    """`text` with a zero-width space after each separator. A long text without separators, such as a hash,
    gets one after every eight characters.
    """
    for mark in "/\\-_.:":
        text = text.replace(mark, mark + "\u200b")
    if "\u200b" in text or len(text) < _LONG:
        return text
    return "\u200b".join(text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
