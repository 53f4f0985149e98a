"""Tokens by their bytes: which begin with given bytes (token healing), and which equal a text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from engine.text.tokenizer.tokenizer import Tokenizer

_sorted: WeakKeyDictionary[Tokenizer, Sequence[tuple[bytes, int]]] = WeakKeyDictionary()
"""All tokens with bytes, except control tokens, sorted by bytes."""


class TokenPrefixes:
    """The tokens of one vocabulary by their bytes.

    Cheap to create: the index is built once for each tokenizer, on first use. The bytes are those of
    `Tokenizer.token_bytes`: SentencePiece's "▁the" begins with a space, even at the start of a text, where
    the space is not shown. Control tokens and tokens without bytes are left out.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def starting_with(self, prefix: bytes) -> npt.NDArray[np.int64]:
        """(n,) int64, ascending: the tokens whose bytes begin with `prefix`."""
        pairs, size = self._pairs(), len(prefix)
        low = bisect_left(pairs, (prefix, -1))
        # Tokens with the prefix are contiguous from `low`, followed by those with a greater beginning.
        high = bisect_left(pairs, True, low, key=lambda pair: pair[0][:size] > prefix)
        return np.sort(np.array([id for _, id in pairs[low:high]], dtype=np.int64))

    def exactly(self, data: bytes) -> tuple[int, ...]:
        """The tokens whose bytes are `data`, ascending; possibly several (a letter and its byte token)."""
        pairs = self._pairs()
        low = bisect_left(pairs, (data, -1))
        high = bisect_left(pairs, (data + b"\0", -1), low)
        return tuple(id for _, id in pairs[low:high])

    def all_bytes(self) -> Sequence[tuple[bytes, int]]:
        """(bytes, id) of every token, sorted by bytes."""
        return self._pairs()

    def _pairs(self) -> Sequence[tuple[bytes, int]]:
        found = _sorted.get(self._tokenizer)
        if found is None:  # two threads may both make it: wasteful but harmless
            ids = sorted(set(range(self._tokenizer.vocab_size)) - self._tokenizer.special_ids)
            pairs = ((self._tokenizer.token_bytes(id), id) for id in ids)
            found = _sorted[self._tokenizer] = sorted(pair for pair in pairs if pair[0])
        return found
