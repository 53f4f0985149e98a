"""A gate that no banned string passes: text is held while it may still become one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BanHit:
    """A banned string came up: its first character is number `start` of everything fed since the gate was made.

    `text` is what stood there, `string` the banned string it is.
    """

    start: int
    text: str
    string: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """Text that is certain to belong to no banned string, and the banned string right behind it (None while there is none)."""

    text: str
    hit: BanHit | None


@dataclass(frozen=True, slots=True)
class _State:
    """`held` is the end of the text, `folded` the same for comparing, `cleared` the number of characters before it."""

    cleared: int
    held: str
    folded: str
    hit: BanHit | None


class BannedStrings:
    """Finds the first of `strings` to be completed, of those completed by one character the longest, wherever chunks are cut.

    A banned string inside a longer one that is still open counts at once: whatever follows, the text has to go back. After
    a hit nothing more is cleared until `restore`. With `ignore_case` characters are compared case-folded, each by itself
    and only where that leaves it one character, so that positions stay what they are: "ß" is not "ss".
    """

    def __init__(self, strings: Iterable[str], ignore_case: bool = True) -> None:
        self._fold = _folded if ignore_case else str
        self._strings = {self._fold(string): string for string in strings if string}
        self._sorted = sorted(self._strings)
        self._first = frozenset(string[0] for string in self._strings)
        self._longest = max(map(len, self._strings), default=0)
        self._state = _State(0, "", "", None)

    @property
    def held(self) -> str:
        """The end of the text, which may still become a banned string."""
        return self._state.held

    def feed(self, text: str) -> Cleared:
        """Take a chunk; what is certain now. With a hit: the text that stands before it."""
        state = self._state
        if state.hit is not None:
            return Cleared("", state.hit)
        whole, folded = state.held + text, state.folded + self._fold(text)
        # What was held holds no banned string, so the first one to be completed is the one with the earliest end.
        found = [(at + len(string), at, string) for string in self._strings if (at := folded.find(string)) >= 0]
        if found:
            end, at, string = min(found)
            hit = BanHit(state.cleared + at, whole[at:end], self._strings[string])
            self._state = _State(hit.start, "", "", hit)
            return Cleared(whole[:at], hit)
        cut = self._first_open(folded)
        self._state = _State(state.cleared + cut, whole[cut:], folded[cut:], None)
        return Cleared(whole[:cut], None)

    def finish(self) -> str:
        """The text is over: what was held belongs to no banned string."""
        state = self._state
        self._state = _State(state.cleared + len(state.held), "", "", state.hit)
        return state.held

    def snapshot(self) -> object:
        """The state as it is, for `restore`; immutable, and cheap to keep."""
        return self._state

    def restore(self, snapshot: object) -> None:
        """Go back to a `snapshot` of this gate."""
        assert isinstance(snapshot, _State)
        self._state = snapshot

    def _first_open(self, folded: str) -> int:
        """The first index from which the text's end is the beginning of a banned string; its length when there is none."""
        for at in range(max(0, len(folded) - self._longest + 1), len(folded)):
            if folded[at] in self._first:
                tail = folded[at:]
                i = bisect_right(self._sorted, tail)  # the strings that begin with the tail come right behind it
                if i < len(self._sorted) and self._sorted[i].startswith(tail):
                    return at
        return len(folded)


def _folded(text: str) -> str:
    """`text` without capitals, character by character, of the same length."""
    if text.isascii():
        return text.lower()
    return "".join(map(_folded_character, text))


def _folded_character(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character
