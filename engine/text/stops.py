"""Stop strings over a stream of text chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is certain, and the stop string found behind it (None while there is none)."""

    text: str
    matched: str | None


class StopMatcher:
    """Finds the earliest full match of any of `strings`, ties to the longest, wherever the chunks are cut.

    Holds back only the end of the text that could still become, or belong to, such a match. Cost of a chunk: its
    length plus what is held, times the number of strings. After a match nothing more is released; `matched` is the
    stop string found, also when only the end of the text decided it.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(dict.fromkeys(string for string in strings if string))
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> Released:
        """Take a chunk; what is certain of all text so far, without the stop string and what follows it."""
        if self.matched is not None:
            return Released("", None)
        text = self._held + text
        start, matched = self._first_match(text)
        # An unfinished candidate that begins no later than the match could still win by its start or its length.
        open_at = self._first_open(text, start if matched is not None else len(text) - 1, matched)
        if matched is not None and open_at is None:
            self._held, self.matched = "", matched
            return Released(text[:start], matched)
        cut = len(text) if open_at is None else open_at
        self._held = text[cut:]
        return Released(text[:cut], None)

    def finish(self) -> str:
        """The text is over: what was held, up to a stop string that was only waiting for a longer one (then `matched` is set)."""
        text, self._held = self._held, ""
        start, self.matched = self._first_match(text) if self.matched is None else (0, self.matched)
        return text[:start]

    def _first_match(self, text: str) -> tuple[int, str | None]:
        """Start and string of the earliest match, of those with one start the longest."""
        found = [(at, -len(string), string) for string in self._strings if (at := text.find(string)) >= 0]
        if not found:
            return len(text), None
        at, _, string = min(found)
        return at, string

    def _first_open(self, text: str, last: int, matched: str | None) -> int | None:
        """The first position up to `last` from which the text's end is the beginning of a stop string longer than it."""
        longest = max((len(string) for string in self._strings), default=0)
        for at in range(max(0, len(text) - longest + 1), last + 1):
            tail = text[at:]
            if any(len(string) > len(tail) and string.startswith(tail) for string in self._strings):
                return at
        return None
