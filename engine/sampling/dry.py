"""DRY: a penalty for tokens that would continue a verbatim repetition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings

_MOST = 1e30
"""The largest penalty: above any score, and finite in float32 even divided by the temperature."""


@dataclass(frozen=True, slots=True)
class Dry(SamplerStep):
    """Score of token c loses multiplier * base^(L - allowed length).

    L is the length of the longest suffix of the text that also occurred earlier followed by c; the penalty
    applies if L is at least the allowed length. The repeated passage holds no breaker, but c may be one. The
    number of occurrences does not matter. Source: p-e-w, text-generation-webui pull request 5677.
    `state.repeats` finds the passages.
    """

    name: ClassVar[str] = "dry"
    multiplier: float
    base: float
    allowed_length: int
    reach: int
    uses_repeats: ClassVar[bool] = True
    when_greedy: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From the settings that begin with `dry_`; the breakers are in `TokenTables`."""
        return cls(
            settings.dry_multiplier, settings.dry_base, settings.dry_allowed_length, settings.dry_range
        )

    @property
    def active(self) -> bool:
        return self.multiplier > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        ids, lengths = state.repeats.continuations(self.allowed_length, self.reach)
        if not ids.shape[0]:
            return
        exponents = (lengths - self.allowed_length) * math.log(self.base) + math.log(self.multiplier)
        penalties = np.exp(np.minimum(exponents, math.log(_MOST)))
        scores, places, which = candidates.edit(ids)
        scores[places] -= penalties[which].astype(scores.dtype)
