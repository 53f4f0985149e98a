"""Steps that lean towards less likely tokens: XTC and skew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings

COIN = 64
"""The purpose of XTC's random number (`Sampler.uniform`); far from those of drawing and of checking
drafts.
"""


@dataclass(frozen=True, slots=True)
class Xtc(SamplerStep):
    """Exclude top choices: with some probability drops all tokens that reach a threshold except the least
    likely of them.

    One random number a token decides. With fewer than two such tokens nothing is dropped. Of equally likely
    ones the one with the highest id stays. Where a protected token (a line break, a special token) would be
    dropped, nothing is: without it the others would end or run on more often than the model wants. Source:
    p-e-w's
    text-generation-webui pull request 6335.
    """

    name: ClassVar[str] = "xtc"
    chance: float
    threshold: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `xtc_probability` and `xtc_threshold`; the protected tokens are in the sampler's tables."""
        return cls(settings.xtc_probability, settings.xtc_threshold)

    @property
    def active(self) -> bool:
        """Whether the probability is not 0."""
        return self.chance > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Drop them if the random number says so."""
        if state.rng(COIN) >= self.chance:
            return
        share = math.log(self.threshold * candidates.mass) if self.threshold > 0 else -math.inf
        likely = candidates.reaching(candidates.largest + share)
        if likely.shape[0] < 2:
            return
        ids, scores = candidates.ids_at(likely), candidates.scores()[likely]
        stays = np.lexsort((-ids, scores))[0]
        dropped = np.delete(likely, stays)
        if state.tables.xtc_protected.isdisjoint(np.delete(ids, stays).tolist()):
            candidates.drop(dropped)


@dataclass(frozen=True, slots=True)
class Skew(SamplerStep):
    """Bends the draw: the running sum c of the probabilities, likeliest first, becomes c^exp(skew).

    Drawing from that with a number u is the same as drawing with u^exp(-skew) from what was there before, as
    ExLlamaV2 does; but the probabilities told are the true ones, and further steps may follow. Above 0 less
    likely tokens gain.
    """

    name: ClassVar[str] = "skew"
    skew: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """From `skew`."""
        return cls(settings.skew)

    @property
    def active(self) -> bool:
        """Whether the skew is not 0."""
        return self.skew != 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Sort all, and replace the scores."""
        candidates.keep_top(len(candidates))
        sums = candidates.weights().cumsum()
        bent = (sums / sums[-1]) ** math.exp(self.skew)
        shares = bent.copy()
        shares[1:] -= bent[:-1]
        with np.errstate(divide="ignore"):  # ln 0: too little to be drawn
            candidates.replace(np.log(shares))
