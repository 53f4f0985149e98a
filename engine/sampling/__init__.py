"""Drawing the next token: the table of steps. `engine.sampling.sampler.Sampler` applies it."""

from __future__ import annotations

from engine.sampling.penalties import OccurrencePenalty, RepetitionPenalty
from engine.sampling.step import SamplerStep
from engine.sampling.temperature import Temperature
from engine.sampling.truncation import MinP, TopK, TopP

SAMPLER_STEPS: tuple[type[SamplerStep], ...] = (RepetitionPenalty, OccurrencePenalty, Temperature, TopK, TopP, MinP)
"""All steps in their order of application: first those that change scores, then those that drop candidates."""

__all__ = ["SAMPLER_STEPS"]
