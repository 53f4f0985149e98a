"""DRY: tokens that would go on repeating an earlier passage word for word become less likely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings

_MOST = 1e30
"""The largest penalty: it outweighs any score and stays finite in float32, also after a division by the
temperature.
"""


@dataclass(frozen=True, slots=True)
class Dry(SamplerStep):
    """Score of token c loses multiplier * base^(L - allowed length), where L is the length of the longest
    passage that ends the text and was followed by c before, if L is at least the allowed length.

    A passage holds no breaker; c itself may be one. How often the passage occurred does not matter. Source:
    the proposal of p-e-w in text-generation-webui, pull request 5677. The places are kept in `state.repeats`,
    which belongs to one sampler.
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
        """From the settings that begin with `dry_`; the breakers are in the sampler's tables."""
        return cls(
            settings.dry_multiplier, settings.dry_base, settings.dry_allowed_length, settings.dry_range
        )

    @property
    def active(self) -> bool:
        """Whether the multiplier is not 0."""
        return self.multiplier > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change the scores of the tokens that would lengthen a repeat."""
        ids, lengths = state.repeats.continuations(self.allowed_length, self.reach)
        if not ids.shape[0]:
            return
        exponents = (lengths - self.allowed_length) * math.log(self.base) + math.log(self.multiplier)
        penalties = np.exp(np.minimum(exponents, math.log(_MOST)))
        scores, places, which = candidates.edit(ids)
        scores[places] -= penalties[which].astype(scores.dtype)
