"""Steps that drop tokens by the shape of the distribution: tail-free and locally typical sampling."""

from __future__ import annotations

import math

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.selection import Scores, top_indices
from engine.sampling.step import SamplerState, SamplerStep

_FIRST_HEAD = 256


@dataclass(frozen=True, slots=True)
class TailFree(SamplerStep):
    """Cuts the tail where the sorted probabilities stop bending.

    The absolute second differences of the sorted probabilities are divided by their sum. Tokens stay while
    the running sum is at most `tail_free`, plus one more. All tokens stay if there are fewer than three or
    all are equally likely. Source: Phénix and Egan, "Tail Free Sampling", trentbrick.github.io; the number of
    tokens kept is that of its code and of ExLlamaV2.
    """

    name = "tail_free"
    tail_free: float

    @property
    def active(self) -> bool:
        return self.tail_free < 1.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Grow the head until the cut is certain: beyond a head that ends with weight w, the second
        differences add up to at most 2 w.
        """
        weights, size = candidates.weights(), len(candidates)
        count = min(_FIRST_HEAD, size)
        while True:
            head = weights[candidates.top(count)].astype(np.float64)
            if head.shape[0] < 3:
                return
            falls = head[:-1] - head[1:]
            bend = np.abs(falls[:-1] - falls[1:]).cumsum()
            kept = int(bend.searchsorted(self.tail_free * bend[-1], "right"))
            at_most = bend.searchsorted(self.tail_free * (bend[-1] + 2 * head[-1]), "right")
            if count == size or kept == at_most < bend.shape[0]:
                break
            count = min(count * 8, size)
        if bend[-1] > 0:
            candidates.keep_top(kept + 1)


@dataclass(frozen=True, slots=True)
class Typical(SamplerStep):
    """Keeps the fewest tokens that reach the mass, those whose surprise -ln p is nearest to the entropy.

    The token that crosses the mass is included, as in the paper (arXiv 2202.00666). Ties go to lower ids.
    """

    name = "typical"
    typical: float

    @property
    def active(self) -> bool:
        return self.typical < 1.0

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Grow the set of nearest tokens until it reaches the mass, so that sorting all tokens is rare."""
        entropy, size = candidates.entropy(), len(candidates)
        weights, total = candidates.weights(), candidates.mass
        # A token's surprise is ln(mass) - (score - largest); it equals the entropy at this score.
        expected = candidates.largest + math.log(total) - entropy
        scores = candidates.scores()
        nearness: Scores = -np.abs(scores - scores.dtype.type(expected))
        target, count = self.typical * total, min(_FIRST_HEAD, size)
        while True:
            nearest = top_indices(nearness, count)
            mass = weights[nearest].cumsum(dtype=np.float64)
            if mass[-1] >= target or count == size:
                break
            count = min(count * 8, size)
        kept = nearest[: int(mass.searchsorted(target)) + 1]
        kept.sort()
        candidates.keep(kept[scores[kept] > -np.inf])
