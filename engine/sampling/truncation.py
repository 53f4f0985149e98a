"""Steps that drop unlikely tokens: top-k, top-p, min-p. Each works on what the ones before left, with its mass made 1 again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState
from engine.settings import SamplerSettings

_FIRST_NUCLEUS = 256


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k likeliest tokens; of equally likely ones those with the lowest ids. Source: arXiv 1805.04833."""

    k: int
    uses_history: ClassVar[bool] = False
    keeps_argmax: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `top_k`."""
        return cls(settings.top_k)

    @property
    def active(self) -> bool:
        """Whether k is not 0."""
        return self.k > 0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Keep the k likeliest."""
        if self.k < len(candidates):
            candidates.keep_top(self.k)


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the smallest set of likeliest tokens whose mass reaches p (nucleus sampling, arXiv 1904.09751).

    The token that crosses p is *included*, as in the paper, Hugging Face and llama.cpp; ExLlamaV2 leaves it out. At least one
    token stays, so p = 0 keeps the likeliest alone.
    """

    p: float
    uses_history: ClassVar[bool] = False
    keeps_argmax: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `top_p`."""
        return cls(settings.top_p)

    @property
    def active(self) -> bool:
        """Whether p is below 1."""
        return self.p < 1.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Keep the nucleus. Looks at ever larger heads of the distribution, so that it rarely has to sort all of it."""
        weights, size = candidates.weights(), len(candidates)
        wanted = self.p * float(weights.sum(dtype=np.float64))
        count = min(_FIRST_NUCLEUS, size)
        while True:
            head = candidates.top(count)
            mass = weights[head].cumsum(dtype=np.float64)
            if mass[-1] >= wanted or count == size:
                break
            count = min(count * 8, size)
        candidates.keep_top(min(int(np.searchsorted(mass, wanted)) + 1, size))


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps tokens at least `share` times as likely as the likeliest one. Source: arXiv 2407.01082."""

    share: float
    uses_history: ClassVar[bool] = False
    keeps_argmax: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `min_p`."""
        return cls(settings.min_p)

    @property
    def active(self) -> bool:
        """Whether the share is not 0."""
        return self.share > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Compare scores, which needs no exponentials: p >= share * p_max where score >= largest score + ln(share)."""
        scores = candidates.scores
        candidates.keep(np.flatnonzero(scores >= scores.max() + math.log(self.share)))
