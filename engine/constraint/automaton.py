"""Which tokens lead towards one of several texts: an automaton over bytes, matched with the sorted
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from engine.constraint.vocabulary import Mask, Vocabulary

Unit = tuple[bytes, ...]
"""One place of a text: the byte strings any of which may stand there."""

_Item = tuple[int, int, bytes]  # which text, its next unit, the rest of the unit under way

_KEPT_MASKS = 256


class State:
    """A state of the automaton; `done`: one of the texts is complete here."""

    __slots__ = ("alive", "done", "items", "next")

    def __init__(self, items: frozenset[_Item], done: bool) -> None:
        self.items = items
        self.done = done
        self.next: dict[int, State] | None = None
        self.alive: bool | None = None


class TextAutomaton:
    """All ways to write one of `texts`, or, when `free`, anything that begins with one of them.

    A token is allowed if its bytes lead towards a text that can still be completed with the vocabulary's
    tokens. States are made when they are first reached; their masks are kept. Used by one thread.
    """

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[Sequence[Unit]], *, free: bool) -> None:
        self._vocabulary = vocabulary
        self._texts = texts
        self._free = free
        self._states: dict[frozenset[_Item], State] = {}
        self._masks: dict[frozenset[_Item], Mask] = {}
        letters = {byte for text in texts for unit in text for choice in unit for byte in choice}
        singles = {word[0] for word in vocabulary.words if len(word) == 1}
        self._complete = letters <= singles  # then every text that is begun can be finished
        self._lengths = [
            [*accumulate((len(min(unit, key=_size)) for unit in text[::-1]), initial=0)][::-1]
            for text in texts
        ]
        """The fewest bytes that remain of each text, by its next unit."""
        self.start = self._state((i, 0, b"") for i in range(len(texts)))

    def step(self, state: State, data: bytes) -> State | None:
        """The state after these bytes; None if they do not match. Where anything may follow, it stays."""
        for byte in data:
            if state.done and self._free:
                return state
            found = self._next(state).get(byte)
            if found is None:
                return None
            state = found
        return state

    def possible(self) -> bool:
        """Whether the vocabulary can write any of the texts."""
        return self._alive(self.start)

    def allows(self, state: State, data: bytes) -> bool:
        """Whether a token with these bytes (not empty) may follow."""
        after = self.step(state, data)
        return after is not None and self._alive(after)

    def shortest(self, state: State) -> bytes:
        """The fewest bytes from here to the end of a text; of several, the first in order."""
        if state.done:
            return b""
        left = [(len(rest) + self._lengths[text][unit], text, unit, rest) for text, unit, rest in state.items]
        fewest = min(left)[0]
        return min(
            rest + b"".join(min(choices, key=_size) for choices in self._texts[text][unit:])
            for length, text, unit, rest in left
            if length == fewest
        )

    def mask(self, state: State) -> Mask:
        """The tokens that may follow; stop tokens only where a text is complete. Do not write to it."""
        found = self._masks.get(state.items)
        if found is None:
            parts = [
                self._vocabulary.ids[low:high]
                for low, high, after in self._reached(state)
                if self._alive(after)
            ]
            found = self._vocabulary.mask_of(np.concatenate([self._vocabulary.ids[:0], *parts]))
            if state.done:
                found |= self._vocabulary.stop
            if len(self._masks) >= _KEPT_MASKS:
                self._masks.clear()
            self._masks[state.items] = found
        return found

    def _reached(self, state: State) -> Iterator[tuple[int, int, State]]:
        """Ranges of `words` that match, with the state each leads to."""
        stack = [(state, b"", 0, len(self._vocabulary.words))]
        while stack:
            here, path, low, high = stack.pop()
            for byte, after in self._next(here).items():
                text = path + bytes([byte])
                first, last = self._vocabulary.range_of(text, low, high)
                if first == last:
                    continue
                if after.done and self._free:
                    yield first, last, after
                    continue
                rest = first
                while rest < last and len(self._vocabulary.words[rest]) == len(text):
                    rest += 1
                if rest > first:
                    yield first, rest, after
                if rest < last:
                    stack.append((after, text, rest, last))

    def _state(self, items: Iterable[_Item]) -> State:
        key = frozenset(items)
        found = self._states.get(key)
        if found is None:
            done = any(not left and unit == len(self._texts[text]) for text, unit, left in key)
            found = self._states[key] = State(key, done)
        return found

    def _next(self, state: State) -> dict[int, State]:
        if state.next is None:
            by_byte: dict[int, set[_Item]] = {}
            for text, unit, left in state.items:
                if left:
                    by_byte.setdefault(left[0], set()).add((text, unit, left[1:]))
                elif unit < len(self._texts[text]):
                    for choice in self._texts[text][unit]:
                        by_byte.setdefault(choice[0], set()).add((text, unit + 1, choice[1:]))
            state.next = {byte: self._state(items) for byte, items in by_byte.items()}
        return state.next

    def _alive(self, state: State) -> bool:
        """Whether a text can be completed from here with the vocabulary's tokens."""
        if self._complete or state.done:
            return True
        if state.alive is None:
            self._find_alive(state)
        return bool(state.alive)

    def _find_alive(self, state: State) -> None:
        # Depth first without recursion: texts can be long. No way leads back, since every byte brings a text
        # nearer.
        stack = [(state, [after for _, _, after in self._reached(state)])]
        while stack:
            here, ways = stack[-1]
            if here.done or any(after.done or after.alive for after in ways):
                here.alive = True
            else:
                unknown = next((after for after in ways if after.alive is None), None)
                if unknown is not None:
                    stack.append((unknown, [after for _, _, after in self._reached(unknown)]))
                    continue
                here.alive = False
            stack.pop()


def _size(choice: bytes) -> tuple[int, bytes]:
    """The order of choices: the shortest first."""
    return len(choice), choice
