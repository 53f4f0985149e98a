"""Steps that drop unlikely tokens below one bound.

Each works on the tokens that the steps before it left, renormalised to a mass of 1.
"""

from __future__ import annotations

import math

from engine.lazy_dataclass import dataclass
from engine.sampling import passes
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep


@dataclass(frozen=True, slots=True)
class TopNSigma(SamplerStep):
    """Keeps tokens whose score is at least the largest minus n standard deviations of all scores.

    If no step comes before it, the scores are the model's logits, as in the paper (arXiv 2411.07641). A
    common scale factor, as from temperature, changes nothing. The deviation is that of the population (the
    paper's code uses n - 1).
    """

    name = "top_n_sigma"
    top_n_sigma: float

    @property
    def active(self) -> bool:
        return self.top_n_sigma > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        spread = self.top_n_sigma * candidates.deviation()
        candidates.keep_reaching(candidates.largest - spread)


@dataclass(frozen=True, slots=True)
class TopK(SamplerStep):
    """Keeps the k likeliest tokens, ties by lowest id (arXiv 1805.04833)."""

    name = "top_k"
    top_k: int

    @property
    def active(self) -> bool:
        return self.top_k > 0

    def compiled_step(self) -> tuple[int, float] | None:
        return passes.KEEP_TOP, self.top_k

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        if self.top_k < len(candidates):
            candidates.keep_top(self.top_k)


@dataclass(frozen=True, slots=True)
class TopP(SamplerStep):
    """Keeps the smallest set of likeliest tokens whose mass reaches p (nucleus sampling, arXiv 1904.09751).

    The token that crosses p is *included*, as in the paper, Hugging Face and llama.cpp; ExLlamaV2 leaves it
    out. At least one token stays, so p = 0 keeps only the likeliest.
    """

    name = "top_p"
    top_p: float

    @property
    def active(self) -> bool:
        return self.top_p < 1.0

    def compiled_step(self) -> tuple[int, float] | None:
        return passes.KEEP_NUCLEUS, self.top_p

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.keep_nucleus(self.top_p)


@dataclass(frozen=True, slots=True)
class TopA(SamplerStep):
    """Keeps tokens with p >= a * p_max^2: few if the model is confident, many if not.

    Source: BlinkDL's RWKV-LM; the formula as in ExLlamaV2.
    """

    name = "top_a"
    top_a: float

    @property
    def active(self) -> bool:
        return self.top_a > 0.0

    def compiled_step(self) -> tuple[int, float] | None:
        return passes.KEEP_SQUARED, self.top_a

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """With weights w = p / p_max, whose sum is 1 / p_max, the condition is w >= top_a / sum."""
        candidates.keep_reaching(candidates.largest + math.log(self.top_a / candidates.mass))


@dataclass(frozen=True, slots=True)
class MinP(SamplerStep):
    """Keeps tokens at least `min_p` times as likely as the likeliest one (arXiv 2407.01082)."""

    name = "min_p"
    min_p: float

    @property
    def active(self) -> bool:
        return self.min_p > 0.0

    def compiled_step(self) -> tuple[int, float] | None:
        return passes.KEEP_REACHING, math.log(self.min_p)

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """p >= min_p * p_max is equivalent to score >= largest + ln(min_p), so no exponentials are needed."""
        candidates.keep_reaching(candidates.largest + math.log(self.min_p))
