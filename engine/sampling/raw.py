"""What the model itself said of one token: probabilities, entropy and likeliest tokens of a row of raw logits."""

from __future__ import annotations

import math

import numpy as np

from engine.sampling.candidates import Floats, Workspace
from engine.sampling.selection import dot, top_indices

_CHUNK = 65536
"""Numbers worked on at a time: enough for few calls, and they stay in the processor's cache between passes."""


class RawDistribution:
    """The softmax of logits (V,) float32, of which at least one is finite. Nothing is kept of the work space."""

    def __init__(self, logits: Floats, space: Workspace, *, with_entropy: bool = False) -> None:
        self._logits = logits
        self._largest = logits.max()
        total = inner = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is -inf, which is what is meant
            for start in range(0, logits.shape[0], _CHUNK):
                depths = np.subtract(logits[start : start + _CHUNK], self._largest, out=space.scores[start : start + _CHUNK])
                weights = np.exp(depths, out=space.weights[start : start + _CHUNK])
                total += dot(weights)
                if with_entropy:
                    part = dot(weights, depths)
                    # 0 times -inf is meant to be 0
                    inner += part if not math.isnan(part) else dot(weights, np.nan_to_num(depths, neginf=0.0))
        self._total = total
        self.entropy = max(0.0, math.log(total) - inner / total) if with_entropy else 0.0

    def probability(self, token: int) -> float:
        """Of one token; 0 outside the vocabulary."""
        if not 0 <= token < self._logits.shape[0]:
            return 0.0
        return float(np.exp(np.float64(self._logits[token]) - np.float64(self._largest))) / self._total

    def likeliest(self, count: int) -> list[int]:
        """Ids, likeliest first, ties by lowest id; none without probability."""
        found = top_indices(self._logits, count)
        return [int(token) for token in found if self._logits[token] > -np.inf]
