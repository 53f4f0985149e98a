"""Temperature: flattens or sharpens the distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState
from engine.settings import SamplerSettings

GREEDY_BELOW = 0.01
"""Temperatures below this always take the likeliest token: dividing by them would only lose precision."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Scores are divided by the temperature. Below `GREEDY_BELOW` the sampler draws greedily instead, without this step."""

    temperature: float
    uses_history: ClassVar[bool] = False
    keeps_argmax: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `temperature`."""
        return cls(settings.temperature)

    @property
    def greedy(self) -> bool:
        """Whether the sampler takes the likeliest token instead of drawing."""
        return self.temperature < GREEDY_BELOW

    @property
    def active(self) -> bool:
        """Whether the temperature is neither 1 nor greedy."""
        return self.temperature != 1.0 and not self.greedy

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Divide the scores."""
        candidates.divide(self.temperature)
