"""Earlier occurrences of the end of a text, updated as the text grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_FIRST_CAPACITY = 1024
_MOST_APPENDED = 64


class Repeats:
    """For each position, its *run*: the length of the longest passage that ends there and also ends the text.

    A passage holds no breaker, and the last position itself does not count. Appending token t sets the run at
    every earlier t to one more than the run just before it, and all others to 0, so it costs one search for
    t. After any other change all runs are recomputed with the Z algorithm.
    """

    def __init__(self, breakers: frozenset[int]) -> None:
        self._breakers = breakers
        self._text: list[int] = []
        self._tokens = np.zeros(_FIRST_CAPACITY, np.int64)
        # the last element stays 0: the run before the first position
        self._runs = np.zeros(_FIRST_CAPACITY + 1, np.int64)
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)  # of all nonzero runs

    def update(self, text: Sequence[int]) -> None:
        """Follow `text`, the whole text so far."""
        known = len(self._text)
        part = text[:known]
        grown = (part if isinstance(part, list) else [int(token) for token in part]) == self._text
        new = [int(token) for token in text[known:]]
        if grown and len(new) <= _MOST_APPENDED:
            self._reserve(known + len(new))
            for token in new:
                self._append(token)
        else:
            self._rebuild([int(token) for token in text])

    def continuations(
        self, least: int, reach: int = 0
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(n,) ids, ascending, that followed runs of `least` (>= 1) or more tokens; (n,) their longest runs.

        Only the last `reach` tokens of the text count; 0 means all.
        """
        places, lengths = self._places, self._runs[self._places]
        start = max(0, len(self._text) - reach) if reach else 0
        if start:
            places = places[places >= start]
            lengths = np.minimum(self._runs[places], places - start + 1)
        long = lengths >= least
        ids, lengths = self._tokens[places[long] + 1], lengths[long]
        if ids.shape[0] < 2:
            return ids, lengths
        both = np.sort(ids << 32 | lengths)
        ids = both >> 32
        last = np.flatnonzero(np.append(ids[1:] != ids[:-1], True))
        return ids[last], both[last] & 0xFFFFFFFF

    def _append(self, token: int) -> None:
        known = len(self._text)
        places = np.empty(0, np.int64)
        if token not in self._breakers:
            places = np.flatnonzero(self._tokens[:known] == token)
        runs = self._runs[places - 1] + 1
        self._runs[self._places] = 0
        self._runs[places] = runs
        self._places = places
        self._tokens[known] = token
        self._text.append(token)

    def _rebuild(self, text: list[int]) -> None:
        self._reserve(len(text))
        self._tokens[: len(text)] = text
        self._text = text
        self._runs[:] = 0
        after = next(
            (index for index, token in enumerate(reversed(text)) if token in self._breakers), len(text)
        )
        runs = np.asarray(_common_starts(text[::-1], after)[::-1], np.int64)
        self._runs[: len(runs)] = runs
        self._places = np.flatnonzero(runs)

    def _reserve(self, size: int) -> None:
        if size > self._tokens.shape[0]:
            capacity = max(size, 2 * self._tokens.shape[0])
            tokens, runs = np.zeros(capacity, np.int64), np.zeros(capacity + 1, np.int64)
            tokens[: self._tokens.shape[0]] = self._tokens
            runs[: self._runs.shape[0] - 1] = self._runs[:-1]
            self._tokens, self._runs = tokens, runs


def _common_starts(text: list[int], longest: int) -> list[int]:
    """For each position but 0, how many tokens from there on match the start of the text, at most `longest`.

    The Z algorithm, in linear time (Gusfield, Algorithms on Strings, Trees and Sequences, section 1.3).
    """
    size, found = len(text), [0] * len(text)
    if not longest:
        return found
    left = right = 0  # the match that extends furthest
    for place in range(1, size):
        length = min(found[place - left], right - place) if place < right else 0
        while place + length < size and text[length] == text[place + length]:
            length += 1
        found[place] = length
        if place + length > right:
            left, right = place, place + length
    return [min(length, longest) for length in found]
