"""Positions in a text as Python counts them (characters) and as Qt does (UTF-16 units): an emoji is one
character and two units.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left

from desktop.store.conversations.token_trace import TokenTrace

__all__ = ["TokenUnits", "Units"]

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


class Units:
    """Converts positions in one text, which may grow at its end."""

    def __init__(self, text: str = "") -> None:
        self._astral: list[int] = []
        self.characters = 0
        self.add(text)

    @property
    def units(self) -> int:
        """The length of the text in units."""
        return self.characters + len(self._astral)

    def add(self, text: str) -> None:
        """Append to the text."""
        if not text.isascii():
            self._astral += [match.start() + self.characters for match in _ASTRAL.finditer(text)]
        self.characters += len(text)

    def unit(self, character: int) -> int:
        """The unit at which a character begins."""
        return character + bisect_left(self._astral, character)

    def character(self, unit: int) -> int:
        """The character that a unit belongs to."""
        low, high = 0, len(self._astral)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._astral[middle] + middle < unit else (low, middle)
        return unit - low


class TokenUnits:
    """The positions of a trace's tokens in units; `grow` follows a trace that grows at its end."""

    def __init__(self, trace: TokenTrace) -> None:
        self.trace = trace
        self.starts = array("I")
        self._units = Units()
        self.grow()

    @property
    def length(self) -> int:
        """The length of the tokens' text in units, as far as it was read."""
        return self._units.units

    def grow(self) -> None:
        """Read the tokens that the trace has gained."""
        known = self._units.characters
        if known < self.trace.length:
            self._units.add(self.trace.text[known:])
        fresh = self.trace.starts[len(self.starts) :]
        self.starts.extend(
            fresh if self._units.units == self._units.characters else map(self._units.unit, fresh)
        )

    def end(self, token: int) -> int:
        """The unit after a token."""
        return self.starts[token + 1] if token + 1 < len(self.starts) else self.length
