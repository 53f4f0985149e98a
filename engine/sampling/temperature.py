"""Steps that flatten or sharpen the distribution without changing the order of the tokens."""

from __future__ import annotations

import math

from engine.lazy_dataclass import dataclass
from engine.sampling import passes
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep

GREEDY_BELOW = 0.01
"""Temperatures below this take the likeliest token: dividing by them would only lose precision."""


@dataclass(frozen=True, slots=True)
class Temperature(SamplerStep):
    """Divides the scores by the temperature.

    Below `GREEDY_BELOW` the sampler is greedy instead, without this step.
    """

    name = "temperature"
    temperature: float

    @property
    def greedy(self) -> bool:
        """Whether the sampler takes the likeliest token instead of sampling."""
        return self.temperature < GREEDY_BELOW

    @property
    def active(self) -> bool:
        return self.temperature != 1.0 and not self.greedy

    def compiled_step(self) -> tuple[int, float] | None:
        return passes.SCALE, 1.0 / self.temperature

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.scale(1.0 / self.temperature)


@dataclass(frozen=True, slots=True)
class DynamicTemperature(SamplerStep):
    """Divides the scores by T = min + (max - min) * (H / ln n)^exponent; H is the entropy of the n tokens.

    A confident model (H near 0) gets the lower temperature, an uncertain one the higher. T is at
    least `GREEDY_BELOW`. The step is independent of `Temperature`. Source: dynamic temperature of
    koboldcpp and ExLlamaV2.
    """

    name = "dynamic_temperature"
    min_temperature: float
    max_temperature: float
    temperature_exponent: float

    @property
    def active(self) -> bool:
        return self.max_temperature > self.min_temperature

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        count, low, high = candidates.survivors, self.min_temperature, self.max_temperature
        if count > 1:
            doubt = min(1.0, candidates.entropy() / math.log(count))
            temperature = low + (high - low) * doubt**self.temperature_exponent
            candidates.scale(1.0 / max(temperature, GREEDY_BELOW))


@dataclass(frozen=True, slots=True)
class Smoothing(SamplerStep):
    """Score l becomes -factor * (l - largest)^2: the curve is flat near the best token and steep far from it.

    The temperature is a separate step. Source: quadratic sampling by kalomaze, in ExLlamaV2's form.
    """

    name = "smoothing"
    smoothing_factor: float

    @property
    def active(self) -> bool:
        return self.smoothing_factor > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.square(self.smoothing_factor)
