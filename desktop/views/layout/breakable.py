"""Places where a long path, address or number may be broken into lines."""

from __future__ import annotations

__all__ = ["breakable"]


def breakable(text: str) -> str:
    """`text` with zero-width spaces after each separator, or, where it has none, every eight letters."""
    for mark in "/\\-_.:":
        text = text.replace(mark, mark + "\u200b")
    if "\u200b" in text or len(text) < 40:
        return text
    return "\u200b".join(text[at : at + 8] for at in range(0, len(text), 8))
