"""Raw probabilities, entropy and likeliest tokens: the softmax of the logits before all sampler steps."""

from __future__ import annotations

import math

import numpy as np

from engine.sampling import kernels
from engine.sampling.candidates import Floats
from engine.sampling.selection import Scores, dot, top_indices


class RawDistribution:
    """The softmax of logits (V,) float32 with a finite maximum; `maxima` are their `column_maxima` and `scan`
    their top-k scan, if known.
    """

    def __init__(self, logits: Floats, maxima: Scores | None, scan: kernels.TopKScan | None = None) -> None:
        self._logits = logits
        self._maxima = maxima
        self._scan = scan
        if scan is not None:
            self._largest, self._total, self._inner = scan.largest, scan.total, scan.inner
        else:
            largest = (logits if maxima is None else maxima).max()
            self._largest, (self._total, self._inner) = float(largest), _softmax_sums(logits, largest)

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        return max(0.0, math.log(self._total) - self._inner / self._total)

    def probability(self, token: int) -> float:
        """The probability of `token`; 0 outside the vocabulary."""
        if not 0 <= token < self._logits.shape[0]:
            return 0.0
        return math.exp(float(self._logits[token]) - self._largest) / self._total

    def likeliest(self, count: int) -> list[int]:
        """Ids of the `count` likeliest tokens, likeliest first, ties by lowest id; -inf is left out."""
        if self._scan is not None and (self._scan.complete or count <= len(self._scan.ids)):
            return list(self._scan.ids[:count].tolist())
        found = top_indices(self._logits, count, self._maxima)
        return [int(token) for token in found if self._logits[token] > -np.inf]


def _softmax_sums(logits: Floats, largest: np.float32) -> tuple[float, float]:
    """The sums of w = exp(l - largest) and of w * (l - largest) over logits l."""
    if logits.shape[0] >= kernels.MIN_COMPILED:
        return kernels.softmax_sums(logits, largest)
    # a difference that overflows float32 is -inf, as intended
    with np.errstate(over="ignore", invalid="ignore"):
        depths = logits - largest
        weights = np.exp(depths)
        inner = dot(weights, depths)
    if math.isnan(inner):  # 0 * -inf counts as 0
        inner = dot(weights, np.maximum(depths, np.float32(-87)))
    return dot(weights), inner
