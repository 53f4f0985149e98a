"""Penalties for tokens that occur within the repetition range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings


@dataclass(frozen=True, slots=True)
class RepetitionPenalty(SamplerStep):
    """Score l of each token that occurs becomes l / p if l > 0, else l * p: less likely for p > 1.

    Applied once to each token, however often it occurs. p approaches 1 as the strength of the token's latest
    occurrence fades (`History.strengths`). Source: CTRL, arXiv 1909.05858, section 4.1, in the sign-aware
    form of Hugging Face; the fading is ExLlamaV2's.
    """

    name: ClassVar[str] = "repetition"
    penalty: float
    reach: int
    uses_history: ClassVar[bool] = True
    when_greedy: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `repetition_penalty` and `repetition_range`; `History` applies `repetition_decay`."""
        return cls(settings.repetition_penalty, settings.repetition_range)

    @property
    def active(self) -> bool:
        return self.penalty != 1.0 and self.reach != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        history = state.history
        if not history.ids.shape[0]:
            return
        latest, _ = history.strengths()
        scores, places, which = candidates.edit(history.ids)
        old = scores[places]
        penalty = (
            old.dtype.type(self.penalty)
            if latest is None
            else (1 + (self.penalty - 1) * latest[which]).astype(old.dtype)
        )
        scores[places] = np.where(old > 0, old / penalty, old * penalty)


@dataclass(frozen=True, slots=True)
class OccurrencePenalty(SamplerStep):
    """Score l of each token that occurs n times becomes l - presence - n * frequency.

    Faded occurrences count by their strength: the presence penalty by that of the latest occurrence, the
    frequency penalty by the sum over all (`History.strengths`). Source: `presence_penalty` and
    `frequency_penalty` of the OpenAI API. Here the prompt counts too.
    """

    name: ClassVar[str] = "occurrence"
    presence: float
    frequency: float
    reach: int
    uses_history: ClassVar[bool] = True
    when_greedy: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From both penalties and `repetition_range`; `History` applies `repetition_decay`."""
        return cls(settings.presence_penalty, settings.frequency_penalty, settings.repetition_range)

    @property
    def active(self) -> bool:
        return (self.presence != 0.0 or self.frequency != 0.0) and self.reach != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        history = state.history
        if not history.ids.shape[0]:
            return
        latest, amounts = history.strengths()
        penalties = self.frequency * amounts + (self.presence if latest is None else self.presence * latest)
        scores, places, which = candidates.edit(history.ids)
        scores[places] -= penalties[which].astype(scores.dtype)
