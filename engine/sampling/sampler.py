"""The sampler of one sequence: applies the active steps to a row of logits and draws a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.sampling import SAMPLER_STEPS
from engine.sampling.candidates import Candidates
from engine.sampling.history import History
from engine.sampling.step import SamplerState, SamplerStep
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings

Floats = npt.NDArray[np.float32]

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token. `probability` is its final one, after all steps; `raw_probability` is the softmax of the raw logits.

    `top` holds (id, final probability) of the likeliest remaining candidates, likeliest first, as many as were asked for or
    fewer. A greedy draw has one candidate, with probability 1.
    """

    id: int
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Draws tokens for one sequence. Equal settings, seed, logits and calls give equal ids, bit for bit, on one machine.

    Each call takes exactly one number from the sampler's own PCG64 generator, a greedy one too, so what is drawn at a place
    of the text depends only on the seed and on how many tokens were drawn before. `settings.seed` is not looked at.
    """

    def __init__(self, settings: SamplerSettings, seed: int) -> None:
        self._steps: tuple[SamplerStep, ...] = tuple(step for kind in SAMPLER_STEPS if (step := kind.from_settings(settings)).active)
        self._greedy = Temperature.from_settings(settings).greedy
        if self._greedy:
            self._steps = tuple(step for step in self._steps if not step.keeps_argmax)
        self._uses_history = any(step.uses_history for step in self._steps)
        self._reach = settings.repetition_range
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._scratch: Floats = np.empty(0, np.float32)
        self._state = SamplerState(History(self._reach, 0))

    def sample(self, logits: Floats, history: Sequence[int], *, top: int = 0, banned: Sequence[int] = ()) -> Sampled:
        """Draw a token. logits (V,) float32 stays as it is; `history` is prompt and reply so far, looked at by penalties only.

        `banned` ids cannot be drawn. `top` asks for that many of the likeliest candidates. Raises EngineError when the logits
        hold NaN or +inf, or leave nothing to draw.
        """
        uniform = float(self._random.random())
        self._prepare(logits)
        with np.errstate(over="ignore"):  # a difference beyond float32 is -inf, which is what is meant
            return self._sample(logits, history, uniform, top, banned)

    def _sample(self, logits: Floats, history: Sequence[int], uniform: float, top: int, banned: Sequence[int]) -> Sampled:
        largest = _largest(logits)
        raw_sum = float(np.exp(np.subtract(logits, largest, out=self._scratch), out=self._scratch).sum())
        candidates = Candidates(logits, self._scratch)
        if banned:
            _ban(candidates, banned)
        if self._uses_history:
            self._state.history.update(history)
        for step in self._steps:
            step.apply(candidates, self._state)
        if self._greedy:
            token = candidates.id_at(candidates.best())
            probability, likeliest = 1.0, ((token, 1.0),)[:top]
        else:
            index, mass = _draw(candidates, uniform)
            token = candidates.id_at(index)
            probability = float(candidates.weights()[index]) / mass
            likeliest = _likeliest(candidates, mass, top)
        raw_probability = float(np.exp(np.float64(logits[token]) - np.float64(largest))) / raw_sum
        return Sampled(token, probability, raw_probability, likeliest)

    def _prepare(self, logits: Floats) -> None:
        """Buffers for this vocabulary."""
        if logits.ndim != 1 or logits.dtype != np.float32 or not logits.shape[0]:
            raise ValueError(f"logits are {logits.dtype} {logits.shape}, but must be float32 (V,)")
        if logits.shape != self._scratch.shape:
            self._scratch = np.empty_like(logits)
            self._state = SamplerState(History(self._reach, logits.shape[0]))


def _largest(logits: Floats) -> np.float32:
    largest = np.float32(logits.max())
    if not np.isfinite(largest):
        raise EngineError(
            "The model's scores for the next token are not finite numbers, so none can be drawn; "
            "its file may be damaged: fetch it again or choose another model."
        )
    return largest


def _ban(candidates: Candidates, banned: Sequence[int]) -> None:
    scores = candidates.writable()
    scores[[token for token in banned if 0 <= token < scores.shape[0]]] = -np.inf
    if scores.max() == -np.inf:
        raise EngineError("Every token that the model could write next is banned; take some of the bans away.")


def _draw(candidates: Candidates, uniform: float) -> tuple[int, float]:
    """The index of the candidate in whose share of the mass `uniform` (0 <= u < 1) falls, and the sum of the weights."""
    weights = candidates.weights()
    size = weights.shape[0]
    if size <= 2 * _BLOCK:
        mass = weights.cumsum(dtype=np.float64)
        return _first_beyond(mass, uniform * mass[-1]), float(mass[-1])
    # Running sums of a whole vocabulary are slow: first the block, then the place in it.
    body = size - size % _BLOCK
    sums = np.append(weights[:body].reshape(-1, _BLOCK).sum(axis=1), weights[body:].sum())
    mass = sums.cumsum(dtype=np.float64)
    wanted = uniform * mass[-1]
    block = _first_beyond(mass, wanted)
    within = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    before = mass[block - 1] if block else 0.0
    return block * _BLOCK + _first_beyond(within, wanted - before), float(mass[-1])


def _first_beyond(mass: npt.NDArray[np.float64], wanted: float) -> int:
    """The first index whose running sum exceeds `wanted`; where rounding left none, the last one that added anything."""
    return min(int(np.searchsorted(mass, wanted, side="right")), int(np.searchsorted(mass, mass[-1])))


def _likeliest(candidates: Candidates, mass: float, count: int) -> tuple[tuple[int, float], ...]:
    if count <= 0:
        return ()
    weights = candidates.weights()
    pairs = ((candidates.id_at(int(index)), float(weights[index]) / mass) for index in candidates.top(count))
    return tuple(pair for pair in pairs if pair[1] > 0.0)
