"""The final distribution at one position: the remaining candidates and their probabilities."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from engine.lazy_dataclass import dataclass
from engine.sampling.selection import top_indices

_BLOCK = 512
_SHORT_LIST = 256
"""Arrays up to this length are processed in a Python loop."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXING = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_ALL = np.ones(1)
_ALL.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities of the next token.

    `ids` (n,) int64 are ascending or sorted by likelihood, or None for the whole vocabulary in order.
    `probabilities` (n,) are float64 or float32 and sum to 1. With `greedy`, one token is certain and sampling
    needs no random number.
    """

    ids: npt.NDArray[np.int64] | None
    probabilities: npt.NDArray[np.floating]
    greedy: bool = False

    def probability(self, token: int) -> float:
        """The probability of `token`; 0 if it was dropped."""
        if self.ids is None:
            return float(self.probabilities[token]) if 0 <= token < len(self.probabilities) else 0.0
        if self.ids.shape[0] <= _SHORT_LIST:
            ids = self.ids.tolist()
            return float(self.probabilities[ids.index(token)]) if token in ids else 0.0
        found = np.flatnonzero(self.ids == token)
        return float(self.probabilities[found[0]]) if found.shape[0] else 0.0

    def probabilities_of(self, tokens: Sequence[int]) -> list[float]:
        """The `probability` of each token."""
        if self.ids is None or self.ids.shape[0] > _SHORT_LIST:
            return [self.probability(token) for token in tokens]
        known = dict(zip(self.ids.tolist(), self.probabilities.tolist(), strict=True))
        return [known.get(token, 0.0) for token in tokens]

    def sample(self, uniform: float) -> int:
        """Inverse transform sampling: the token whose interval of the cumulative sum contains `uniform`.

        `uniform` is between 0 and 1. A token of probability 0 is never sampled.
        """
        index = _place(self.probabilities, uniform)
        return index if self.ids is None else int(self.ids[index])

    def race(self, uniform: float) -> int:
        """The first of all tokens to arrive, each after an exponentially distributed time whose rate is its
        probability: token i is drawn with probability p(i).

        The times depend on `uniform`, between 0 and 1, and on the ids alone. From another distribution, at
        total variation distance d, the same number draws the same token with a probability of at least
        (1 - d) / (1 + d), without either knowing the other (Daliri et al., arXiv 2408.07978).
        """
        ids = np.arange(self.probabilities.shape[0]) if self.ids is None else self.ids
        with np.errstate(divide="ignore"):
            index = int((_waits(ids, uniform) / self.probabilities).argmin())
        return int(ids[index])

    def likeliest(self, count: int) -> tuple[tuple[int, float], ...]:
        """(id, probability) of the `count` likeliest tokens, likeliest first, ties in their current order.

        Tokens of probability 0 are left out.
        """
        if count <= 0:
            return ()
        found = top_indices(self.probabilities, count).tolist()
        pairs = (
            (index if self.ids is None else int(self.ids[index]), float(self.probabilities[index]))
            for index in found
        )
        return tuple(pair for pair in pairs if pair[1] > 0.0)


def certain(token: int) -> Distribution:
    """The distribution of greedy sampling: `token` with probability 1."""
    return Distribution(np.asarray([token], np.int64), _ALL, greedy=True)


def _waits(ids: npt.NDArray[np.int64], uniform: float) -> npt.NDArray[np.float64]:
    """Exponentially distributed numbers of mean 1, one for each id: -log of a hash by splitmix64, whose start
    `uniform` chooses.
    """
    mixed = ids.astype(np.uint64) * _GOLDEN + np.uint64(int(uniform * 2.0**53) << 11)
    for shift, factor in _MIXING:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> np.uint64(31)
    waits: npt.NDArray[np.float64] = -np.log(((mixed >> np.uint64(12)) + 0.5) * 2.0**-52)
    return waits


def _place(weights: npt.NDArray[np.floating], uniform: float) -> int:
    size = weights.shape[0]
    if size <= _SHORT_LIST and weights.dtype == np.float64:
        masses = list(accumulate(weights.tolist()))
        return min(bisect_right(masses, uniform * masses[-1]), bisect_left(masses, masses[-1]))
    if size <= 2 * _BLOCK:
        mass = weights.cumsum(dtype=np.float64)
        return _first_beyond(mass, uniform * mass[-1])
    # A cumulative sum over the whole vocabulary is slow: find the block first, then the index in it.
    body = size - size % _BLOCK
    sums = np.append(weights[:body].reshape(-1, _BLOCK).sum(axis=1), weights[body:].sum())
    mass = sums.cumsum(dtype=np.float64)
    target = uniform * mass[-1]
    block = _first_beyond(mass, target)
    within = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    before = mass[block - 1] if block else 0.0
    return block * _BLOCK + _first_beyond(within, target - before)


def _first_beyond(mass: npt.NDArray[np.float64], target: float) -> int:
    """The first index whose running sum exceeds `target`, at the latest the last that adds anything."""
    return min(int(mass.searchsorted(target, "right")), int(mass.searchsorted(mass[-1])))
