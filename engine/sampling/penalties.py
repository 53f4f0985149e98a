"""Penalties for tokens that already occurred within the repetition range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState
from engine.settings import SamplerSettings


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Score l of each token that occurred becomes l / p where l > 0, else l * p: less likely either way for p > 1.

    Applied once for each token, however often it occurred. Source: CTRL, arXiv 1909.05858, section 4.1, in the sign-aware
    form that Hugging Face made usual.
    """

    penalty: float
    reach: int
    uses_history: ClassVar[bool] = True
    keeps_argmax: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `repetition_penalty` and `repetition_range`."""
        return cls(settings.repetition_penalty, settings.repetition_range)

    @property
    def active(self) -> bool:
        """Whether the penalty is not 1 and looks at any token."""
        return self.penalty != 1.0 and self.reach != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change the scores of the tokens in the history."""
        ids = state.history.ids
        if ids.shape[0]:
            scores, penalty = candidates.writable(), np.float32(self.penalty)
            old = scores[ids]
            scores[ids] = np.where(old > 0, old / penalty, old * penalty)


@dataclass(frozen=True, slots=True)
class OccurrencePenalty:
    """Score l of each token that occurred n times becomes l - presence - n * frequency.

    Source: the `presence_penalty` and `frequency_penalty` of the OpenAI API. Here the prompt counts too.
    """

    presence: float
    frequency: float
    reach: int
    uses_history: ClassVar[bool] = True
    keeps_argmax: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `presence_penalty`, `frequency_penalty` and `repetition_range`."""
        return cls(settings.presence_penalty, settings.frequency_penalty, settings.repetition_range)

    @property
    def active(self) -> bool:
        """Whether one of the penalties is not 0 and looks at any token."""
        return (self.presence != 0.0 or self.frequency != 0.0) and self.reach != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change the scores of the tokens in the history."""
        history = state.history
        if history.ids.shape[0]:
            candidates.writable()[history.ids] -= (self.presence + self.frequency * history.counts).astype(np.float32)
