"""Bit masks over a vocabulary, applied to its scores: bit i % 32 of word i // 32 is token i."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.sampling import kernels
from engine.sampling.selection import Ids, Scores

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]

_EIGHT_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(bool)
_ADDED_BY_BITS = np.where(_EIGHT_BITS, np.float32(0), np.float32(-np.inf))
"""(256, 8) float32: what a byte of a mask adds to the scores of its eight tokens."""

_SPARSE = 32
"""Masks that allow fewer than one token in this many become a list of ids at once."""


class Workspace:
    """Reusable (V,) float32 arrays: allocating new ones for each token costs more than filling them."""

    def __init__(self, size: int) -> None:
        self.scores: Floats = np.empty(size, np.float32)
        self.weights: Floats = np.empty(size, np.float32)


def mask_words(mask: Words, size: int) -> Words:
    """The words of a mask for `size` tokens; tokens beyond the mask are disallowed."""
    words = np.zeros(-(-size // 32), np.uint32)
    words[: mask.shape[0]] = mask[: words.shape[0]]
    return words


def few_allowed(words: Words, size: int) -> Ids | None:
    """The allowed ids, ascending, if fewer than one in `_SPARSE`; else None."""
    if int(np.bitwise_count(words).sum()) * _SPARSE >= size:
        return None
    allowed = np.flatnonzero(np.unpackbits(_octets(words), bitorder="little"))
    return allowed[allowed < size]


def masked(scores: Scores, words: Words, out: Floats) -> tuple[Scores, Scores | None]:
    """Write the scores to `out`, -inf for disallowed tokens; returns `out`, and `column_maxima` or None."""
    if len(scores) >= kernels.MIN_COMPILED:
        return out, kernels.allow(scores, words, out)
    added = np.take(_ADDED_BY_BITS, _octets(words), axis=0, mode="clip").ravel()[: len(scores)]
    return np.add(scores, added, out=out), None


def _octets(words: Words) -> npt.NDArray[np.uint8]:
    """The bytes of a mask in token order."""
    return words.astype("<u4", copy=False).view(np.uint8)
