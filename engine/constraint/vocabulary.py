"""A tokenizer's vocabulary as filters need it: tokens that write text, sorted by their bytes, and masks."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.text.tokenizer.tokenizer import Tokenizer

Mask = npt.NDArray[np.uint32]
"""(ceil(V / 32),) packed bits: bit i % 32 of word i // 32 is set where token i is allowed."""
_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Tokenizer, dict[frozenset[int], Vocabulary]] = weakref.WeakKeyDictionary()


class Vocabulary:
    """The V tokens of one tokenizer. Control tokens, stop tokens and ids without a text write no text; the
    control tokens `marks` do.

    `texts` (V) are the bytes of each id, empty if it writes no text; `words` are those of the others in
    ascending order and `ids` (n,) int64 their ids; `text` and `stop` are masks of these tokens and of the
    stop tokens.
    """

    def __init__(self, tokenizer: Tokenizer, marks: frozenset[int] = frozenset()) -> None:
        self.size = tokenizer.vocab_size
        self.stop_ids = tuple(tokenizer.stop_token_ids)
        silent = tokenizer.special_ids.union(self.stop_ids) - marks
        self.texts = [b"" if i in silent else tokenizer.token_bytes(i) for i in range(self.size)]
        order = sorted((i for i in range(self.size) if self.texts[i]), key=self.texts.__getitem__)
        self.words = [self.texts[i] for i in order]
        self.ids = np.array(order, np.int64)
        self.longest = max(map(len, self.words), default=0)
        self.text = self.mask_of(order)
        self.stop = self.mask_of(self.stop_ids)

    def empty(self) -> Mask:
        """A new mask that allows nothing."""
        return np.zeros((self.size + 31) // 32, np.uint32)

    def mask_of(self, ids: Iterable[int] | npt.NDArray[np.int64]) -> Mask:
        """A new mask that allows exactly these tokens."""
        flags = np.zeros((self.size + 31) // 32 * 32, np.uint8)
        flags[ids if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)] = 1
        # Bit 0 of byte 0 is token 0 on every machine: read as little-endian words, then converted.
        return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32)

    def range_of(self, beginning: bytes, low: int = 0, high: int | None = None) -> tuple[int, int]:
        """Where in `words[low:high]` those that begin with `beginning` (not empty) are: from, to."""
        stop = len(self.words) if high is None else high
        start = bisect_left(self.words, beginning, low, stop)
        return start, bisect_left(self.words, _after(beginning), start, stop) if beginning.strip(
            b"\xff"
        ) else stop


def vocabulary_of(tokenizer: Tokenizer, marks: frozenset[int] = frozenset()) -> Vocabulary:
    """The vocabulary of a tokenizer with these `marks`, made once while that tokenizer lives. Thread-safe."""
    with _lock:
        known = _known.setdefault(tokenizer, {})
        if marks not in known:
            known[marks] = Vocabulary(tokenizer, marks)
        return known[marks]


def allows(mask: Mask, token: int) -> bool:
    """Whether a mask allows one token; tokens beyond the mask are not allowed."""
    return 0 <= token < mask.shape[0] * 32 and bool(mask[token >> 5] >> np.uint32(token & 31) & np.uint32(1))


def _after(text: bytes) -> bytes:
    """The first byte string after all that begin with `text`, which is not all 0xFF."""
    kept = text.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
