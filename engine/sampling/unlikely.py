"""Steps that favour less likely tokens: XTC and skew."""

from __future__ import annotations

import math

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep

XTC_PURPOSE = 64
"""The purpose of XTC's random number (`Sampler.uniform`), distinct from sampling and verification."""


@dataclass(frozen=True, slots=True)
class Xtc(SamplerStep):
    """Exclude top choices: sometimes drops all tokens that reach a threshold except the least likely.

    One random number decides for each token. Nothing is dropped if fewer than two tokens reach the threshold
    or if a protected token (a line break, a special token) would be dropped, because dropping it would change
    how often lines or the reply end. Of equally likely tokens the one with the highest id stays. The
    protected tokens are in `TokenTables`. Source: p-e-w, text-generation-webui pull request 6335.
    """

    name = "xtc"
    xtc_probability: float
    xtc_threshold: float

    @property
    def active(self) -> bool:
        return self.xtc_probability > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        if state.rng(XTC_PURPOSE) >= self.xtc_probability:
            return
        share = math.log(self.xtc_threshold * candidates.mass) if self.xtc_threshold > 0 else -math.inf
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
    """Bends the distribution: the cumulative probability c, likeliest first, becomes c^exp(skew).

    Sampling from it with a number u equals sampling from the original with u^exp(-skew), as ExLlamaV2 does;
    but here the reported probabilities are the true ones, and further steps may follow. A skew above 0
    favours less likely tokens.
    """

    name = "skew"
    skew: float

    @property
    def active(self) -> bool:
        return self.skew != 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.keep_top(len(candidates))
        sums = candidates.weights().cumsum()
        bent = (sums / sums[-1]) ** math.exp(self.skew)
        shares = bent.copy()
        shares[1:] -= bent[:-1]
        with np.errstate(divide="ignore"):  # ln 0: too small to be sampled
            candidates.replace(np.log(shares))
