"""Steps that adapt to the sampled tokens: mirostat and adaptive-p."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.step import Feedback, SamplerState, SamplerStep


@dataclass(frozen=True, slots=True)
class Mirostat(SamplerStep):
    """Keeps the tokens with a surprise of at most mu bits (p >= 2^-mu), and always the likeliest.

    mu starts at 2 tau. After a token with probability p among those kept, mu grows by eta * (tau + log2
    p), so the mean surprise approaches tau. Source: version 2 of arXiv 2007.14966, as in its authors'
    code and llama.cpp.
    """

    name = "mirostat"
    mirostat: bool
    mirostat_tau: float
    mirostat_eta: float
    learns = True

    @property
    def active(self) -> bool:
        return self.mirostat

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.keep_reaching(
            candidates.largest + math.log(candidates.mass) - state.feedback.surprise * math.log(2)
        )
        state.notes[self.name] = candidates.distribution()

    def learn(self, feedback: Feedback, probability: float) -> Feedback:
        """Update mu."""
        change = self.mirostat_eta * (self.mirostat_tau + math.log2(probability))
        return replace(feedback, surprise=feedback.surprise + change)


@dataclass(frozen=True, slots=True)
class AdaptiveP(SamplerStep):
    """Prefers tokens near a target: score = 5 - 10 d^2 / (1 + d) with d = |p - adapted target| / 0.3.

    The adapted target is 2 * target minus a running mean, clamped to 0..1. The mean is over the probabilities
    that the sampled tokens had *before* this step; it starts at the target and keeps the fraction
    `adaptive_decay` of itself with each token. The step does not suppress a long tail of very unlikely
    tokens: drop them first. Source: adaptive-p by MrJackSpade and ddh0, llama.cpp pull request 17927.
    """

    name = "adaptive_p"
    adaptive_target: float
    adaptive_decay: float
    learns = True

    @property
    def active(self) -> bool:
        return self.adaptive_target > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        if candidates.whole:
            candidates.keep_reaching(-math.inf)
        before = candidates.distribution()
        state.notes[self.name] = before
        adapted = min(max(2 * self.adaptive_target - state.feedback.average, 0.0), 1.0)
        distance = np.abs(before.probabilities - adapted) / 0.3
        candidates.replace(5 - 10 * distance**2 / (1 + distance))

    def learn(self, feedback: Feedback, probability: float) -> Feedback:
        """Update the running mean."""
        kept = self.adaptive_decay
        return replace(feedback, average=kept * feedback.average + (1 - kept) * probability)
