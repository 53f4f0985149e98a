"""The final distribution of one draw: what is left of the candidates after all steps, with probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities of the next token. `ids` (n,) int64 ascending or by likelihood, None when all V tokens are there in order;
    `probabilities` (n,) float64 or float32, sum 1. `greedy`: one token is certain, and drawing needs no random number.
    """

    ids: npt.NDArray[np.int64] | None
    probabilities: npt.NDArray[np.floating]
    greedy: bool = False

    def probability(self, token: int) -> float:
        """Of one token; 0 when it was dropped."""
        if self.ids is None:
            return float(self.probabilities[token]) if 0 <= token < len(self.probabilities) else 0.0
        found = np.flatnonzero(self.ids == token)
        return float(self.probabilities[found[0]]) if found.shape[0] else 0.0
