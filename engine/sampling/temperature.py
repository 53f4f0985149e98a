"""Steps that flatten or sharpen the distribution and keep the tokens in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from engine.sampling import passes
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings

GREEDY_BELOW = 0.01
"""Temperatures below this always take the likeliest token: dividing by them would only lose precision."""


@dataclass(frozen=True, slots=True)
class Temperature(SamplerStep):
    """Scores are divided by the temperature.

    Below `GREEDY_BELOW` the sampler draws greedily instead, without this step.
    """

    name: ClassVar[str] = "temperature"
    temperature: float

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

    def for_few(self) -> tuple[int, float] | None:
        """As in the base class."""
        return passes.SCALE, 1.0 / self.temperature

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Divide the scores."""
        candidates.scale(1.0 / self.temperature)


@dataclass(frozen=True, slots=True)
class DynamicTemperature(SamplerStep):
    """Scores are divided by T = low + (high - low) * (H / ln n)^exponent, H the entropy over the n tokens
    that are left.

    A sure model (H near 0) gets the lower temperature, an unsure one the higher. `Temperature` is a step of
    its own and stays what it is. T is kept from falling below `GREEDY_BELOW`. Source: koboldcpp's and
    ExLlamaV2's dynamic temperature.
    """

    name: ClassVar[str] = "dynamic_temperature"
    low: float
    high: float
    exponent: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `min_temperature`, `max_temperature` and `temperature_exponent`."""
        return cls(settings.min_temperature, settings.max_temperature, settings.temperature_exponent)

    @property
    def active(self) -> bool:
        """Whether the highest temperature is above the lowest."""
        return self.high > self.low

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Divide the scores."""
        count = candidates.survivors
        if count > 1:
            doubt = min(1.0, candidates.entropy() / math.log(count))
            candidates.scale(
                1.0 / max(self.low + (self.high - self.low) * doubt**self.exponent, GREEDY_BELOW)
            )


@dataclass(frozen=True, slots=True)
class Smoothing(SamplerStep):
    """Score l becomes -factor * (l - largest)^2: near the best token the curve is flat, far from it steep.

    Source: quadratic sampling of kalomaze, in ExLlamaV2's form. It does not include the temperature.
    """

    name: ClassVar[str] = "smoothing"
    factor: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `smoothing_factor`."""
        return cls(settings.smoothing_factor)

    @property
    def active(self) -> bool:
        """Whether the factor is not 0."""
        return self.factor > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Square the distances."""
        candidates.square(self.factor)
