"""An index of the runs of 1 to 5 tokens in a text that can grow and be truncated."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_POWERS = [pow(_FACTOR, k, 1 << 64) for k in range(8)]
_BULK = 64
"""From this many new tokens, arrays are faster than a loop."""


class NgramIndex:
    """The positions after each run of `shortest` to `longest` tokens of `text`, latest first.

    The run of k tokens that ends before position p is stored once token p is known, under a 64-bit polynomial
    hash. Earlier positions of the same run are chained, so that truncating the text undoes it. Memory: about
    70 bytes for each token and run length.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.text: list[int] = []
        self._orders = range(shortest, longest + 1)
        # of the run before position i, at i; 0 if there is none
        self._keys = {k: array("Q") for k in self._orders}
        # the position before i with the same run; -1 for none
        self._before = {k: array("i") for k in self._orders}
        self._latest: dict[int, dict[int, int]] = {k: {} for k in self._orders}

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens to the text."""
        if len(ids) >= _BULK:
            self._extend_many(ids)
            return
        for token in ids:
            place = len(self.text)
            for k, key in zip(self._orders, self.keys(self.text), strict=False):
                latest = self._latest[k]
                self._keys[k].append(key)
                self._before[k].append(latest.get(key, -1))
                latest[key] = place
            for k in self._orders[min(len(self._orders), max(0, place - self._orders[0] + 1)) :]:
                self._keys[k].append(0)
                self._before[k].append(-1)
            self.text.append(token)

    def keys(self, text: Sequence[int]) -> Iterator[int]:
        """The keys of the runs that end `text`, shortest first, as far as there are enough tokens."""
        key = 0
        for k in range(1, min(self._orders[-1], len(text)) + 1):
            key = (key + (text[-k] + 1) * _POWERS[k - 1]) & _MASK
            if k >= self._orders[0]:
                yield key

    def _extend_many(self, ids: Sequence[int]) -> None:
        start, reach = len(self.text), self._orders[-1]
        first = max(0, start - reach)
        self.text.extend(ids)
        text = np.array(self.text[first:], np.uint64) + np.uint64(1)
        key = np.zeros(len(text) + 1, np.uint64)  # at i: of the run that ends before position first + i
        for k in range(1, reach + 1):
            key[k:] += text[: len(text) - k + 1] * np.uint64(_POWERS[k - 1])
            if k in self._latest:
                self._store(k, key[start - first : -1].copy(), max(start, k))

    def _store(self, k: int, keys: np.ndarray[tuple[int], np.dtype[np.uint64]], begin: int) -> None:
        """Store the keys of the next positions; those before `begin` have no run of length `k`."""
        start = len(self._keys[k])
        keys[: max(0, begin - start)] = 0
        before = np.full(len(keys), -1, np.int32)
        latest = self._latest[k]
        valid = keys[begin - start :]
        order = np.argsort(valid, kind="stable")
        same = np.flatnonzero(valid[order[1:]] == valid[order[:-1]])
        inner = before[begin - start :]
        inner[order[same + 1]] = order[same] + begin
        if latest:
            firsts = np.delete(order, same + 1)
            for i, key in zip(firsts.tolist(), valid[firsts].tolist(), strict=True):
                inner[i] = latest.get(key, -1)
        self._keys[k].frombytes(keys.tobytes())
        self._before[k].frombytes(before.tobytes())
        latest.update(zip(valid.tolist(), range(begin, begin + len(valid)), strict=True))

    def cut(self, length: int) -> None:
        """Truncate the text to `length` tokens."""
        for k in self._orders:
            keys, before, latest = self._keys[k], self._before[k], self._latest[k]
            for place in range(len(self.text) - 1, max(length, k) - 1, -1):
                if before[place] < 0:
                    del latest[keys[place]]
                else:
                    latest[keys[place]] = before[place]
            del keys[length:], before[length:]
        del self.text[length:]

    def places(self, k: int, key: int, limit: int) -> list[int]:
        """At most `limit` positions after the run of `k` tokens with this key, latest first."""
        place, before = self._latest[k].get(key, -1), self._before[k]
        found: list[int] = []
        while place >= 0 and len(found) < limit:
            found.append(place)
            place = before[place]
        return found
