"""Verification of a draft: chooses tokens with exactly the distribution of the target model alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.sampling.distribution import Distribution
from engine.speculation.drafter import Proposal

SAMPLE, ACCEPT, RESIDUAL = 0, 1, 2
"""Purposes of random numbers: sampling from the target, testing a draft token, sampling after a rejection."""


def choose(
    target: Distribution, proposal: Proposal | None, uniform: Callable[[int], float]
) -> tuple[int, bool]:
    """The token at one position, with exactly the distribution `target`, and whether it is the drafted one.

    `uniform(purpose)` gives a number in [0, 1) for `SAMPLE`, `ACCEPT` or `RESIDUAL`, each used at most once
    and independent of the draft. A draft token d sampled from q is kept with probability min(1, p(d) / q(d));
    otherwise the token is sampled from max(p - q, 0), normalised (Leviathan et al., arXiv 2211.17192, section
    2.3). For a certain draft token, q(d) = 1, the method here is to sample from p and compare: it is
    equivalent, and the text does not depend on the drafter.
    """
    if proposal is None:
        return target.sample(0.0 if target.greedy else uniform(SAMPLE)), False
    q = proposal.distribution
    if q is None or q.greedy or target.greedy:
        return _compared(target, proposal.id, uniform(SAMPLE))
    likely, guessed = target.probability(proposal.id), q.probability(proposal.id)
    if guessed <= 0.0:  # it was not sampled from q: compare it as if it were certain
        return _compared(target, proposal.id, uniform(SAMPLE))
    if uniform(ACCEPT) * guessed < likely:
        return proposal.id, True
    left = residual(target, q)
    if left is None:
        return _compared(target, proposal.id, uniform(RESIDUAL))
    return left.sample(uniform(RESIDUAL)), False


def _compared(target: Distribution, guess: int, uniform: float) -> tuple[int, bool]:
    token = target.sample(uniform)
    return token, token == guess


def residual(target: Distribution, q: Distribution) -> Distribution | None:
    """max(p - q, 0), normalised, on the target's ids; None if nothing is left, as p equals q up to rounding.

    Vocabularies may differ in size; tokens missing in one have probability 0 there.
    """
    left = target.probabilities.copy()
    if target.ids is not None:
        left -= _of(q, target.ids)
    elif q.ids is None:
        common = min(len(left), len(q.probabilities))
        left[:common] -= q.probabilities[:common]
    else:
        inside = q.ids < len(left)
        left[q.ids[inside]] -= q.probabilities[inside]
    np.maximum(left, 0.0, out=left)
    mass = left.sum()
    if not mass > 0.0:
        return None
    left /= mass
    return Distribution(target.ids, left)


def _of(q: Distribution, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
    """The probability in `q` of each of `ids`."""
    # Only the touched pages of a fresh zero array take memory, so a dense one is cheap even for few ids.
    dense = np.zeros(int(ids.max()) + 1, q.probabilities.dtype)
    if q.ids is None:
        common = min(len(dense), len(q.probabilities))
        if common == len(dense):
            return q.probabilities[ids]
        dense[:common] = q.probabilities[:common]
    else:
        inside = q.ids < len(dense)
        dense[q.ids[inside]] = q.probabilities[inside]
    return dense[ids]
