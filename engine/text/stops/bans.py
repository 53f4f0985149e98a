"""A gate that no banned string passes: text is held while it may become one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BanHit:
    """A banned string was found: `start` is the number of its first character in everything fed so far.

    `text` is the text found, `string` the banned string.
    """

    start: int
    text: str
    string: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """`text` is certain to belong to no banned string, whatever follows. `hit` is the banned string that came
    up, if one did: then `text` stands before it, for a caller that ends there; one that goes back with
    `restore` leaves it, and gets it later.
    """

    text: str
    hit: BanHit | None


@dataclass(frozen=True, slots=True)
class _State:
    """The chunks that matter still: their text, the same for comparing, its number in everything fed, and
    where in it chunks begin.
    """

    start: int = 0
    text: str = ""
    folded: str = ""
    chunks: tuple[int, ...] = ()
    hit: BanHit | None = None


class BannedStrings:
    """Finds the first of `strings` to be completed, of those completed by one character the longest, wherever
    chunks are cut.

    A banned string inside a longer one that is still open counts at once: whatever follows, the text has to
    go back. Only whole chunks are cleared: what may have to be taken back is a token, with all its text.

    After a hit the caller goes back with `restore`, to the state before the chunk in which the banned string
    begins, or, where that chunk has been cleared, before the first one that has not; it must come by other
    chunks from there. What was cleared stays cleared: it is not given out again, but still counts for what
    comes up. So text behind the gate never goes back. Until `restore` nothing more is cleared.

    With `ignore_case` characters are compared case-folded, each by itself and only where that leaves it one
    character, so that positions stay what they are: "ß" is not "ss".
    """

    def __init__(self, strings: Iterable[str], ignore_case: bool = True) -> None:
        self._fold = _folded if ignore_case else str
        self._strings = {self._fold(string): string for string in strings if string}
        self._sorted = sorted(self._strings)
        self._first = frozenset(string[0] for string in self._strings)
        self._longest = max(map(len, self._strings), default=0)
        self._state = _State()
        self._cleared = 0  # characters given out; no part of the state, as they cannot be taken back

    @property
    def held(self) -> str:
        """The last chunks, from the one in which a banned string may have begun; without what was cleared
        before a `restore`.
        """
        state = self._state
        return state.text[max(0, self._cleared - state.start) :]

    def feed(self, text: str) -> Cleared:
        """Take a chunk; returns what is certain now."""
        state = self._state
        if state.hit is not None:
            return Cleared("", state.hit)
        whole, folded = state.text + text, state.folded + self._fold(text)
        shown = max(0, self._cleared - state.start)
        # What was held holds no banned string, so the first one to be completed is the one with the earliest
        # end.
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
        """The text is over: returns what was held, which belongs to no banned string."""
        state, held = self._state, self.held
        self._cleared = state.start + len(state.text)
        self._state = _State(self._cleared, hit=state.hit)
        return held

    def snapshot(self) -> object:
        """The state as it is, for `restore`; immutable, and cheap to keep."""
        return self._state

    def restore(self, snapshot: object) -> None:
        """Go back to a `snapshot` of this gate.

        Raises ValueError for one from before text that was cleared.
        """
        assert isinstance(snapshot, _State)
        if snapshot.start + len(snapshot.text) < self._cleared:
            raise ValueError(f"The gate cannot go back: {self._cleared} characters have been cleared.")
        self._state = snapshot

    def _first_open(self, folded: str) -> int:
        """The first index from which the rest of the text begins a banned string; its length if there is
        none.
        """
        for at in range(max(0, len(folded) - self._longest + 1), len(folded)):
            if folded[at] in self._first:
                tail = folded[at:]
                # the strings that begin with the tail come right behind it
                i = bisect_right(self._sorted, tail)
                if i < len(self._sorted) and self._sorted[i].startswith(tail):
                    return at
        return len(folded)


def _folded(text: str) -> str:
    """`text` in lower case, character by character, of the same length."""
    if text.isascii():
        return text.lower()
    return "".join(map(_folded_character, text))


def _folded_character(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character
