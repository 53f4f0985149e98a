"""The tokens that can still be sampled at one position, with their scores."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.sampling import kernels
from engine.sampling.distribution import Distribution
from engine.sampling.masks import Workspace, few_allowed, mask_words, masked
from engine.sampling.selection import Ids, Scores, at_least, column_maxima, dot, moments, top_indices

Floats = npt.NDArray[np.float32]

_FIRST_NUCLEUS = 256
_SHORT_LIST = 256
"""Arrays up to this length are processed in a Python loop."""


class Candidates:
    """Token ids with scores (logits up to a constant); probabilities are the softmax of the scores.

    At first the candidates are *whole*: token i has the score `_scale` times element i of a float32 array
    over the vocabulary, -inf if the token was dropped. The caller's array is copied before the first change
    other than scaling. Once enough tokens are dropped, the candidates are explicit ids with finite float64
    scores, either in ascending order of ids or *ordered*: likeliest first, ties by lowest id.
    """

    def __init__(
        self,
        logits: Floats,
        space: Workspace,
        maxima: Scores | None = None,
        scan: kernels.TopKScan | None = None,
    ) -> None:
        """Start with `logits` (V,) float32, free of NaN and not all -inf.

        `space` must have the size V and is overwritten. `maxima` are the `column_maxima` of the logits and
        `scan` their top-k scan, if known.
        """
        self._ids: Ids | None = None
        self._scores: Scores = logits
        self._scale = 1.0
        self._ordered = False
        self._space = space
        # Computed on demand; cleared by any change.
        self._weights: npt.NDArray[Any] | None = None
        self._mass: float | None = None
        self._largest: float | None = None
        self._maxima = maxima
        self._has_maxima = maxima is not None
        self._scan = scan  # of the current scores before scaling

    def __len__(self) -> int:
        """The number of candidates; while whole, this includes dropped tokens."""
        return len(self._scores)

    @property
    def whole(self) -> bool:
        """Whether the scores still cover the vocabulary."""
        return self._ids is None

    @property
    def largest(self) -> float:
        """The largest score; -inf if nothing is left."""
        if self._largest is None and self._ordered and len(self):
            self._largest = float(self._scores[0])
        if self._largest is None and self._scan is not None:
            self._largest = self._scan.largest * self._scale
        if self._largest is None:
            values = self._columns() if self._ids is None else self._scores
            values = self._scores if values is None else values
            self._largest = float(values.max(initial=-np.inf)) * self._scale
        return self._largest

    @property
    def empty(self) -> bool:
        """Whether no token is left to sample."""
        if self._ids is not None:
            return not len(self)
        return self._scan is None and float(self._some().max()) == -np.inf and self.largest == -np.inf

    @property
    def survivors(self) -> int:
        """The number of candidates with a score above -inf."""
        return len(self) if self._ids is not None else int(np.count_nonzero(self._scores > -np.inf))

    def scores(self) -> Scores:
        """(n,) scores in the current order of the candidates; read only."""
        return self._scores if self._scale == 1.0 else self._scores * self._scores.dtype.type(self._scale)

    def id_at(self, index: int) -> int:
        """The token id of the candidate at `index`."""
        return index if self._ids is None else int(self._ids[index])

    def ids_at(self, indices: Ids) -> Ids:
        """The token ids of the candidates at `indices`."""
        return indices if self._ids is None else self._ids[indices]

    def weights(self) -> npt.NDArray[Any]:
        """exp(score - largest score) of each candidate, its probability times `mass`; float32 while whole.

        The array is valid only until the next change.
        """
        if self._weights is not None:
            return self._weights
        if self._ids is not None:
            depths = self._scores - self.largest
            if len(depths) <= _SHORT_LIST:  # the same function as in the compiled kernel
                return self._keep_weights(np.array(list(map(math.exp, depths.tolist())), np.float64))
            return self._keep_weights(np.exp(depths, out=depths))
        weights = np.subtract(
            self._scores, self._scores.dtype.type(self.largest / self._scale), out=self._room()
        )
        if self._scale != 1.0:
            np.multiply(weights, weights.dtype.type(self._scale), out=weights)
        return self._keep_weights(np.exp(weights, out=weights))

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        # sequentially, as in the compiled kernel
        if self._mass is None and self._ids is not None and 0 < len(self) <= _SHORT_LIST:
            self._mass = deque(accumulate(self.weights().tolist()), maxlen=1)[0]
        if self._mass is None:
            self._mass = dot(self.weights()) if self._ids is None else float(np.add.reduce(self.weights()))
        return self._mass

    def entropy(self) -> float:
        """The entropy of the distribution in nats."""
        weights = self.weights()
        if self._ids is not None:
            return max(0.0, math.log(self.mass) - dot(weights, self._scores - self.largest) / self.mass)
        depths = self.scores() - self._scores.dtype.type(self.largest)
        with np.errstate(invalid="ignore"):
            total = dot(weights, depths)
        if math.isnan(total):  # 0 * -inf counts as 0
            total = dot(weights, np.nan_to_num(depths, neginf=0.0))
        return max(0.0, math.log(self.mass) - total / self.mass)

    def distribution(self) -> Distribution:
        """The current candidates with a copy of their probabilities."""
        weights = self.weights()
        return Distribution(self._ids, weights / self.mass)

    def deviation(self) -> float:
        """The population standard deviation of the scores above -inf."""
        scores = self._scores
        if self._ids is not None:
            return float(scores.std())
        # A pivot among the larger scores keeps the sums of squares accurate.
        pivot = float(self._some().max())
        pivot = pivot if math.isfinite(pivot) else self.largest / self._scale
        if scores.dtype == np.float32 and len(self) >= kernels.MIN_COMPILED:
            count, total, squares, self._maxima = kernels.moments(scores, pivot)
            self._has_maxima = True
        else:
            count, total, squares = moments(scores, pivot)
        if not math.isfinite(total) or not math.isfinite(squares):
            return float(scores[scores > -np.inf].astype(np.float64).std()) * self._scale
        return math.sqrt(max(0.0, squares / count - (total / count) ** 2)) * self._scale

    # Changes of scores

    def allow(self, mask: npt.NDArray[np.uint32]) -> None:
        """Drop the tokens whose mask bit is clear, and those beyond the mask, before any other change.

        Bit i % 32 of word i // 32 is token i.
        """
        words = mask_words(mask, len(self))
        if (allowed := few_allowed(words, len(self))) is not None:
            self.keep_ids(allowed)
            return
        self._scores, maxima = masked(self._scores, words, self._space.scores)
        self._changed()
        if maxima is not None:
            self._maxima, self._has_maxima = maxima, True

    def edit(self, ids: Ids) -> tuple[Scores, Ids, Ids | slice]:
        """Scores to change in place, the indices in them of those `ids` (unique) that are candidates, and
        which of `ids` these are.
        """
        if self._ids is None:
            scores = self._own()
            inside = ids < scores.shape[0]
            return (
                (scores, ids, slice(None)) if inside.all() else (scores, ids[inside], np.flatnonzero(inside))
            )
        self._by_id()
        self._changed()
        places = np.searchsorted(self._ids, ids)
        which = np.flatnonzero(self._ids[np.minimum(places, len(self) - 1)] == ids)
        return self._scores, places[which], which

    def scale(self, factor: float) -> None:
        """Multiply all scores by `factor` > 0."""
        if self._ids is None:
            self._scale *= factor
            self._weights = self._mass = self._largest = None
        else:
            self._scores = self._scores * factor
            self._changed()

    def square(self, factor: float) -> None:
        """Score l becomes -factor (l - largest)^2, which keeps their order."""
        if self._ids is None:
            scores = np.subtract(
                self._scores, self._scores.dtype.type(self.largest / self._scale), out=self._target()
            )
            np.multiply(scores, scores, out=scores)
            self._scores = np.multiply(
                scores, scores.dtype.type(-factor * self._scale * self._scale), out=scores
            )
            self._scale = 1.0
        else:
            self._scores = -factor * (self._scores - self.largest) ** 2
        self._changed()

    def replace(self, scores: npt.NDArray[np.float64]) -> None:
        """Give explicit candidates new scores (n,) in their current order; those of -inf are dropped."""
        assert self._ids is not None
        self._scores = scores
        self._by_id()
        kept = self._scores > -np.inf
        self._ids, self._scores = self._ids[kept], self._scores[kept]
        self._changed()

    # Dropping

    def best(self) -> int:
        """The index of the likeliest candidate; ties go to the lowest id."""
        if self._known(1):
            assert self._scan is not None
            return int(self._scan.ids[0])
        return int(self._scores.argmax())

    def top(self, count: int) -> Ids:
        """Indices of the likeliest candidates, at most `count`, likeliest first, ties by lowest id."""
        if self._ordered:
            return np.arange(min(count, len(self)))
        if self._ids is not None:
            return top_indices(self._scores, count)
        if self._known(count):
            assert self._scan is not None
            return self._scan.ids[:count].copy()
        found = top_indices(self._scores, count, self._columns())
        return found[self._scores[found] > -np.inf]

    def reaching(self, bound: float) -> Ids:
        """Ascending indices of the candidates with a score >= `bound` and above -inf."""
        if self._ids is not None:
            return np.flatnonzero(self._scores >= bound)
        # Preselect with a slightly lower float32 bound, then compare the scaled scores in float64.
        wide = bound / self._scale
        near = at_least(self._scores, wide - 1e-6 * abs(wide), self._columns())
        return near[self._scores[near].astype(np.float64) * self._scale >= bound]

    def keep_reaching(self, bound: float) -> None:
        """Keep the candidates with a score >= `bound`, and always the likeliest ones."""
        bound = min(bound, self.largest)
        if self._ordered and len(self) <= _SHORT_LIST:
            rising = self._scores.tolist()
            rising.reverse()
            self._shorten(len(rising) - bisect_left(rising, bound))
        elif self._ordered:
            self._shorten(len(self) - int(self._scores[::-1].searchsorted(bound)))
        else:
            self.keep(self.reaching(bound))

    def keep_top(self, count: int) -> None:
        """Keep the `count` (>= 1) likeliest, likeliest first, ties by lowest id."""
        if self._ordered:
            self._shorten(count)
        elif self._known(count):
            assert self._scan is not None
            self._ids, self._scores = (self._scan.ids[:count].copy(), self._scan.scores[:count] * self._scale)
            self._scale, self._ordered = 1.0, True
            self._changed()
        else:
            self.keep(self.top(count))
            self._ordered = True

    def keep_nucleus(self, share: float) -> None:
        """Keep the smallest set of likeliest candidates that reaches `share` of the mass, at least one."""
        weights, size = self.weights(), len(self)
        target = share * self.mass
        if self._ordered and size <= _SHORT_LIST:
            self._shorten(min(bisect_left(list(accumulate(weights.tolist())), target) + 1, size))
            return
        count = min(_FIRST_NUCLEUS, size)
        while True:  # grow the head, so that sorting everything is rare
            head = self.top(count)
            mass = weights[head].cumsum(dtype=np.float64)
            if mass[-1] >= target or count == size:
                break
            count = min(count * 8, size)
        self.keep_top(min(int(mass.searchsorted(target)) + 1, head.shape[0]))

    def keep_ids(self, ids: Ids) -> None:
        """Keep only these ids (ascending, unique, inside the vocabulary); this may leave nothing."""
        if self._ids is None:
            self.keep(ids[self._scores[ids] > -np.inf])
        else:
            self.keep(np.flatnonzero(np.isin(self._ids, ids)))

    def drop_ids(self, ids: Ids) -> None:
        """Drop these ids (inside the vocabulary); this may leave nothing."""
        if self._ids is None:
            self.drop(ids)
        else:
            self.keep(np.flatnonzero(np.isin(self._ids, ids, invert=True)))

    def keep(self, indices: Ids) -> None:
        """Keep the candidates at these indices, none of them -inf, ascending or in the order of `top`."""
        if self._ids is None:
            self._ids = indices
            self._scores = self._scores[indices].astype(np.float64) * self._scale
            self._scale = 1.0
        else:
            self._ids, self._scores = self._ids[indices], self._scores[indices]
        self._changed()

    def drop(self, indices: Ids) -> None:
        """Drop the candidates at these indices."""
        if self._ids is None:
            self._own()[indices] = -np.inf
            self._changed()
            return
        kept = np.ones(len(self), bool)
        kept[indices] = False
        self.keep(np.flatnonzero(kept))

    # Internals

    def _changed(self) -> None:
        self._weights = self._mass = self._largest = self._maxima = self._scan = None
        self._has_maxima = False

    def _known(self, count: int) -> bool:
        """Whether the scan covers the `count` likeliest tokens of the vocabulary."""
        return self._scan is not None and (self._scan.complete or count <= len(self._scan.ids))

    def _shorten(self, count: int) -> None:
        """Keep the first `count` ordered candidates; cached weights stay valid."""
        if count < len(self):
            assert self._ids is not None
            self._ids, self._scores, self._mass = self._ids[:count], self._scores[:count], None
            self._weights = None if self._weights is None else self._weights[:count]

    def _keep_weights(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self._weights = weights
        return weights

    def _some(self) -> Scores:
        """A sample of about 256 scores: usually enough to find one above -inf, and much faster."""
        return self._scores[:: max(1, len(self) // 256)]

    def _columns(self) -> Scores | None:
        if not self._has_maxima:
            self._maxima, self._has_maxima = column_maxima(self._scores), True
        return self._maxima

    def _room(self) -> npt.NDArray[Any]:
        return self._space.weights if self._scores.dtype == np.float32 else np.empty_like(self._scores)

    def _target(self) -> npt.NDArray[Any]:
        return self._space.scores if self._scores.dtype == np.float32 else self._scores

    def _own(self) -> Scores:
        """The scores of the vocabulary, scaled, to change in place; float64 if float32 might overflow."""
        if self._scale != 1.0:
            largest = self.largest
            if abs(largest) < 1e38:
                np.multiply(
                    self._scores, self._scores.dtype.type(self._scale), out=(target := self._target())
                )
                self._scores = target
            else:
                self._scores = self._scores.astype(np.float64) * self._scale
            self._scale = 1.0
        elif self._scores is not self._space.scores and self._scores.dtype == np.float32:
            np.copyto(self._space.scores, self._scores)
            self._scores = self._space.scores
        self._changed()
        return self._scores

    def _by_id(self) -> None:
        if self._ordered:
            assert self._ids is not None
            order = np.argsort(self._ids)
            self._ids, self._scores, self._ordered = self._ids[order], self._scores[order], False
