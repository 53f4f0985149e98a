"""A filter that no banned string passes: text is held back while it may become one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BanHit:
    """A banned string was found: `start` is the index of its first character in all text fed so far.

    `text` is the text found, `string` the banned string.
    """

    start: int
    text: str
    string: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """`text` that can belong to no banned string, whatever follows, and the banned string found, if any.

    With a `hit`, `text` is what precedes it, for a caller that stops there. A caller that goes back with
    `restore` discards `text` and gets it later.
    """

    text: str
    hit: BanHit | None


@dataclass(frozen=True, slots=True)
class _State:
    """The chunks still held: their start in all text fed, text, folded text, and where chunks begin in it."""

    start: int = 0
    text: str = ""
    folded: str = ""
    chunks: tuple[int, ...] = ()
    hit: BanHit | None = None


class BannedStrings:
    """Finds the first of `strings` to be completed, wherever chunks are split; ties go to the longest.

    A banned string inside a longer one that is still open counts at once: whatever follows, the text must be
    taken back. Only whole chunks are cleared, because what is taken back is a token with all its text.

    After a hit the caller goes back with `restore` to the state before the chunk in which the banned string
    begins, or, if that chunk is cleared, before the first chunk that is not; it must feed other chunks from
    there. Cleared text stays cleared: it is not returned again, but still counts in later matches. So
    released text is never taken back. Nothing more is cleared until `restore`.

    With `ignore_case`, characters are compared case-folded one by one, and only if the result is one
    character, so that indices stay valid: "ß" does not equal "ss".
    """

    def __init__(self, strings: Iterable[str], ignore_case: bool = True) -> None:
        self._fold = _folded if ignore_case else str
        self._strings = {self._fold(string): string for string in strings if string}
        self._sorted = sorted(self._strings)
        self._first = frozenset(string[0] for string in self._strings)
        self._longest = max(map(len, self._strings), default=0)
        self._state = _State()
        self._cleared = 0  # characters released; not part of the state, as they cannot be taken back

    @property
    def held(self) -> str:
        """The chunks from the one in which a banned string may begin, without what is cleared."""
        state = self._state
        return state.text[max(0, self._cleared - state.start) :]

    def feed(self, text: str) -> Cleared:
        """Feed a chunk; returns what is now cleared."""
        state = self._state
        if state.hit is not None:
            return Cleared("", state.hit)
        whole, folded = state.text + text, state.folded + self._fold(text)
        shown = max(0, self._cleared - state.start)
        # The held text contains no banned string, so the first one completed has the earliest end.
        found = [
            (at + len(string), at, string) for string in self._strings if (at := folded.find(string)) >= 0
        ]
        if found:
            end, at, string = min(found)
            hit = BanHit(state.start + at, whole[at:end], self._strings[string])
            self._state = _State(state.start + len(whole), hit=hit)
            return Cleared(whole[shown:at], hit)
        chunks, open_at = (*state.chunks, len(state.text)), self._first_open(folded)
        cut = len(whole) if open_at == len(whole) else max(start for start in chunks if start <= open_at)
        self._state = _State(
            state.start + cut,
            whole[cut:],
            folded[cut:],
            tuple(start - cut for start in chunks if start >= cut),
        )
        self._cleared = max(self._cleared, state.start + cut)
        return Cleared(whole[shown:cut], None)

    def finish(self) -> str:
        """End the text; returns what was held, which belongs to no banned string."""
        state, held = self._state, self.held
        self._cleared = state.start + len(state.text)
        self._state = _State(self._cleared, hit=state.hit)
        return held

    def snapshot(self) -> object:
        """The current state for `restore`; immutable and cheap to keep."""
        return self._state

    def restore(self, snapshot: object) -> None:
        """Return to a `snapshot` of this filter. Raises ValueError for one that precedes cleared text."""
        assert isinstance(snapshot, _State)
        if snapshot.start + len(snapshot.text) < self._cleared:
            raise ValueError(f"The gate cannot go back: {self._cleared} characters have been cleared.")
        self._state = snapshot

    def _first_open(self, folded: str) -> int:
        """The first index from which the rest of the text begins a banned string; else the text's length."""
        for at in range(max(0, len(folded) - self._longest + 1), len(folded)):
            if folded[at] in self._first:
                tail = folded[at:]
                # in sorted order, the strings that begin with the tail come right after it
                i = bisect_right(self._sorted, tail)
                if i < len(self._sorted) and self._sorted[i].startswith(tail):
                    return at
        return len(folded)


def _folded(text: str) -> str:
    """`text` in lower case, character by character, with the same length."""
    if text.isascii():
        return text.lower()
    return "".join(map(_folded_character, text))


def _folded_character(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character
