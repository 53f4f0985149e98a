"""Steps that drop unlikely tokens below one bound.

Each works on the tokens that the steps before it left, renormalised to a mass of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from engine.sampling import passes
from engine.sampling.candidates import Candidates
from engine.sampling.step import SamplerState, SamplerStep
from engine.settings import SamplerSettings


@dataclass(frozen=True, slots=True)
class TopNSigma(SamplerStep):
    """Keeps tokens whose score is at least the largest minus n standard deviations of all scores.

    If no step comes before it, the scores are the model's logits, as in the paper (arXiv 2411.07641). A
    common scale factor, as from temperature, changes nothing. The deviation is that of the population (the
    paper's code uses n - 1).
    """

    name: ClassVar[str] = "top_n_sigma"
    n: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        return cls(settings.top_n_sigma)

    @property
    def active(self) -> bool:
        return self.n > 0.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        spread = self.n * candidates.deviation()
        candidates.keep_reaching(candidates.largest - spread)


@dataclass(frozen=True, slots=True)
class TopK(SamplerStep):
    """Keeps the k likeliest tokens, ties by lowest id (arXiv 1805.04833)."""

    name: ClassVar[str] = "top_k"
    k: int

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        return cls(settings.top_k)

    @property
    def active(self) -> bool:
        return self.k > 0

    def for_few(self) -> tuple[int, float] | None:
        return passes.KEEP_TOP, self.k

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        if self.k < len(candidates):
            candidates.keep_top(self.k)


@dataclass(frozen=True, slots=True)
class TopP(SamplerStep):
    """Keeps the smallest set of likeliest tokens whose mass reaches p (nucleus sampling, arXiv 1904.09751).

    The token that crosses p is *included*, as in the paper, Hugging Face and llama.cpp; ExLlamaV2 leaves it
    out. At least one token stays, so p = 0 keeps only the likeliest.
    """

    name: ClassVar[str] = "top_p"
    p: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        return cls(settings.top_p)

    @property
    def active(self) -> bool:
        return self.p < 1.0

    def for_few(self) -> tuple[int, float] | None:
        return passes.KEEP_NUCLEUS, self.p

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        candidates.keep_nucleus(self.p)


@dataclass(frozen=True, slots=True)
class TopA(SamplerStep):
    """Keeps tokens with p >= a * p_max^2: few if the model is confident, many if not.

    Source: BlinkDL's RWKV-LM; the formula as in ExLlamaV2.
    """

    name: ClassVar[str] = "top_a"
    a: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        return cls(settings.top_a)

    @property
    def active(self) -> bool:
        return self.a > 0.0

    def for_few(self) -> tuple[int, float] | None:
        return passes.KEEP_SQUARED, self.a

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """With weights w = p / p_max, whose sum is 1 / p_max, the condition is w >= a / sum."""
        candidates.keep_reaching(candidates.largest + math.log(self.a / candidates.mass))


@dataclass(frozen=True, slots=True)
class MinP(SamplerStep):
    """Keeps tokens at least `share` times as likely as the likeliest one (arXiv 2407.01082)."""

    name: ClassVar[str] = "min_p"
    share: float

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        return cls(settings.min_p)

    @property
    def active(self) -> bool:
        return self.share > 0.0

    def for_few(self) -> tuple[int, float] | None:
        return passes.KEEP_REACHING, math.log(self.share)

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """p >= share * p_max is equivalent to score >= largest + ln(share), so no exponentials are needed."""
        candidates.keep_reaching(candidates.largest + math.log(self.share))
