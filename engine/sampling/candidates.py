"""The tokens still in the running for one draw, with their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]

_GROUPS_PER_TOKEN = 16


def top_indices(scores: Scores, count: int) -> Ids:
    """Indices of the `count` largest of `scores` (n,), largest first, ties by lowest index. No NaN. Fewer when n is smaller.

    No full partition: the maxima of groups of elements give a lower bound for the count-th largest, and only what reaches
    the bound is looked at closely. Each group is a column of a (rows, groups) view, so its maximum is taken by wide vectors.
    """
    size = scores.shape[0]
    count = min(count, size)
    if count <= 0:
        return np.empty(0, np.int64)
    rows = size // (_GROUPS_PER_TOKEN * count)
    if rows >= 2:
        groups = size // rows
        maxima = scores[: rows * groups].reshape(rows, groups).max(axis=0)
        near = np.flatnonzero(scores >= np.partition(maxima, groups - count)[groups - count])
        values = scores[near]
    else:
        near, values = np.arange(size), scores
    if near.shape[0] > count:
        bound = np.partition(values, near.shape[0] - count)[near.shape[0] - count]
        above, equal = np.flatnonzero(values > bound), np.flatnonzero(values == bound)
        chosen = np.sort(np.concatenate((above, equal[: count - above.shape[0]])))
        near, values = near[chosen], values[chosen]
    return near[np.argsort(-values, kind="stable")]


class Candidates:
    """Token ids with scores (logits up to a constant). The probability of each is the softmax of the scores over all of them.

    First *whole*: token i has score i of a float32 array over the vocabulary, which is copied into `scratch` at the first
    change, so the logits stay as they are. After the first `keep`: explicit ids with float64 scores.
    """

    def __init__(self, logits: npt.NDArray[np.float32], scratch: npt.NDArray[np.float32]) -> None:
        """logits (V,) float32, not NaN, not all -inf; scratch (V,) float32 is overwritten when a step changes scores."""
        self._ids: Ids | None = None
        self._scores: Scores = logits
        self._scratch = scratch
        self._ordered = False
        self._weights: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return int(self._scores.shape[0])

    @property
    def scores(self) -> Scores:
        """(n,) scores in the candidates' present order; not to be written."""
        return self._scores

    def id_at(self, index: int) -> int:
        """The token id of a candidate."""
        return index if self._ids is None else int(self._ids[index])

    def weights(self) -> npt.NDArray[Any]:
        """exp(score - largest score) of each candidate: its probability, not yet divided by the sum. float32 while whole."""
        if self._weights is None:
            self._weights = np.exp(self._scores - self._scores.max())
        return self._weights

    def writable(self) -> npt.NDArray[np.float32]:
        """The scores of the whole vocabulary, (V,) float32, to be changed in place."""
        if self._scores is not self._scratch:
            np.copyto(self._scratch, self._whole())
        return self._changed()

    def divide(self, divisor: float) -> None:
        """Divide all scores of the whole vocabulary, counted from the largest, so that none grows beyond float32."""
        whole = self._whole()
        np.subtract(whole, whole.max(), out=self._scratch)
        np.multiply(self._scratch, np.float32(1.0 / divisor), out=self._scratch)
        self._changed()

    def _whole(self) -> Scores:
        if self._ids is not None:
            raise ValueError("scores can be changed only before candidates are dropped")
        return self._scores

    def _changed(self) -> npt.NDArray[np.float32]:
        self._scores, self._weights = self._scratch, None
        return self._scratch

    def best(self) -> int:
        """The index of the likeliest candidate, of equals the one with the lowest id."""
        if self._ids is None or self._ordered:
            return int(self._scores.argmax())
        return int(self.top(1)[0])

    def top(self, count: int) -> Ids:
        """Indices of the `count` likeliest candidates, likeliest first, ties by lowest id."""
        return np.arange(min(count, len(self))) if self._ordered else top_indices(self._scores, count)

    def keep_top(self, count: int) -> None:
        """Keep the `count` (>= 1) likeliest, likeliest first, ties by lowest id."""
        if not self._ordered or count < len(self):
            self.keep(self.top(count))
            self._ordered = True

    def keep(self, indices: Ids) -> None:
        """Keep the candidates at these indices (at least one; in ascending order, unless they come from `top`)."""
        self._ids = indices if self._ids is None else self._ids[indices]
        self._scores = self._scores[indices].astype(np.float64)
        self._weights = None
