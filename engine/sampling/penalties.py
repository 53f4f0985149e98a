"""Penalties for tokens that occur within the repetition range."""

from __future__ import annotations

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep


@dataclass(frozen=True, slots=True)
class RepetitionPenalty(SamplerStep):
    """Score l of each token that occurs becomes l / p if l > 0, else l * p: less likely for p > 1.

    Applied once to each token, however often it occurs. p approaches 1 as the strength of the token's latest
    occurrence fades (`History.strengths`). Source: CTRL, arXiv 1909.05858, section 4.1, in the sign-aware
    form of Hugging Face; the fading is ExLlamaV2's.
    """

    name = "repetition"
    repetition_penalty: float
    repetition_range: int
    uses_history = True
    when_greedy = True

    @property
    def active(self) -> bool:
        return self.repetition_penalty != 1.0 and self.repetition_range != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        history = state.history
        if not history.ids.shape[0]:
            return
        latest, _ = history.strengths()
        scores, places, which = candidates.edit(history.ids)
        old = scores[places]
        p = self.repetition_penalty
        penalty = np.asarray(p if latest is None else 1 + (p - 1) * latest[which], old.dtype)
        scores[places] = np.where(old > 0, old / penalty, old * penalty)


@dataclass(frozen=True, slots=True)
class OccurrencePenalty(SamplerStep):
    """Score l of each token that occurs n times becomes l - presence - n * frequency.

    Faded occurrences count by their strength: the presence penalty by that of the latest occurrence, the
    frequency penalty by the sum over all (`History.strengths`). Source: `presence_penalty` and
    `frequency_penalty` of the OpenAI API. Here the prompt counts too.
    """

    name = "occurrence"
    presence_penalty: float
    frequency_penalty: float
    repetition_range: int
    uses_history = True
    when_greedy = True

    @property
    def active(self) -> bool:
        return (self.presence_penalty != 0.0 or self.frequency_penalty != 0.0) and self.repetition_range != 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        history = state.history
        if not history.ids.shape[0]:
            return
        latest, amounts = history.strengths()
        presence = self.presence_penalty if latest is None else self.presence_penalty * latest
        penalties = self.frequency_penalty * amounts + presence
        scores, places, which = candidates.edit(history.ids)
        scores[places] -= penalties[which].astype(scores.dtype)
