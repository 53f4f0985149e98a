"""DRY: a penalty for tokens that would continue a verbatim repetition."""

from __future__ import annotations

import math

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep

_MOST = 1e30
"""The largest penalty: above any score, and finite in float32 even divided by the temperature."""


@dataclass(frozen=True, slots=True)
class Dry(SamplerStep):
    """Score of token c loses multiplier * base^(L - allowed length).

    L is the length of the longest suffix of the text that also occurred earlier followed by c; the penalty
    applies if L is at least the allowed length. The repeated passage holds no breaker, but c may be one. The
    number of occurrences does not matter. Source: p-e-w, text-generation-webui pull request 5677.
    `state.repeats` finds the passages; the breakers are in `TokenTables`.
    """

    name = "dry"
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_range: int
    uses_repeats = True
    when_greedy = True

    @property
    def active(self) -> bool:
        return self.dry_multiplier > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        ids, lengths = state.repeats.continuations(self.dry_allowed_length, self.dry_range)
        if not ids.shape[0]:
            return
        exponents = (lengths - self.dry_allowed_length) * math.log(self.dry_base)
        exponents += math.log(self.dry_multiplier)
        penalties = np.exp(np.minimum(exponents, math.log(_MOST)))
        scores, places, which = candidates.edit(ids)
        scores[places] -= penalties[which].astype(scores.dtype)
