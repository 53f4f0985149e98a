"""The beginnings of a vocabulary's texts, in the memory of the texts themselves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["Prefixes"]


class Prefixes:
    """All beginnings of some texts, found by bisection: a set of them would take the square of a length."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(texts)
        self._first = frozenset(text[:1] for text in self._texts)
        self._longest = max(map(len, self._texts), default=0)

    def __contains__(self, text: str) -> bool:
        at = bisect_left(self._texts, text)
        return at < len(self._texts) and self._texts[at].startswith(text)

    def at_end(self, text: str, most: int) -> int:
        """The length of the longest beginning, of `most` characters at most, with which `text` ends, or 0."""
        for length in range(min(self._longest, most, len(text)), 0, -1):
            if text[-length] in self._first and text[-length:] in self:
                return length
        return 0
