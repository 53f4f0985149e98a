"""The sampler of one sequence: applies the active steps to a row of logits and draws a token.

What may follow is worked out by `look`, which token it is by `draw`, or elsewhere (a checked draft); `take` fills in the rest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError, NothingAllowed
from engine.sampling import ordered_steps
from engine.sampling.candidates import Candidates, Floats, Workspace
from engine.sampling.distribution import Distribution, certain
from engine.sampling.history import History
from engine.sampling.raw import RawDistribution
from engine.sampling.repeats import Repeats
from engine.sampling.step import Memory, SamplerState, SamplerStep
from engine.sampling.tables import TokenTables
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings

DRAW = 0
"""The purpose of the random number that draws a token (`Sampler.uniform`)."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token. `probability` is its final one, after all steps; `raw_probability` is the softmax of the raw logits.

    `top` holds (id, final probability) of the likeliest remaining candidates, likeliest first, as many as were asked for or
    fewer. A greedy draw has one candidate, with probability 1. `alternatives` holds (id, raw probability, final probability) of
    the tokens that the model itself held likeliest; `entropy` is that of the raw probabilities in nats, 0 unless
    alternatives were asked for.
    """

    id: int
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()
    alternatives: tuple[tuple[int, float, float], ...] = ()
    entropy: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """What may stand at one place. `logits` are the model's own and must still be unchanged when a token is taken.

    `place` is how many tokens came before; `notes` are for steps that learn which token it became.
    """

    distribution: Distribution
    place: int
    logits: Floats
    notes: Mapping[str, Distribution]


class Sampler:
    """Chooses tokens for one sequence. Equal settings, seed, logits and texts give equal ids, bit for bit, on one machine.

    Random numbers belong to places in the text, not to calls: going back, drafting and continuing a text later reproduce
    what was drawn. `settings.seed` is not looked at.
    """

    def __init__(self, settings: SamplerSettings, seed: int, tables: TokenTables = TokenTables()) -> None:
        steps = tuple(step for kind in ordered_steps(settings.order) if (step := kind.from_settings(settings)).active)
        self._greedy = Temperature.from_settings(settings).greedy
        self._steps: tuple[SamplerStep, ...] = tuple(step for step in steps if step.when_greedy) if self._greedy else steps
        self._uses_history = any(step.uses_history for step in self._steps)
        self._uses_repeats = any(step.uses_repeats for step in self._steps)
        self._reach, self._fade = settings.repetition_range, settings.repetition_decay
        self._seed = seed
        self._tables = tables
        self._memory = Memory(2 * settings.mirostat_tau, settings.adaptive_target)
        self._repeats = Repeats(tables.dry_breakers)
        self._resize(0)

    @property
    def seed(self) -> int:
        """The seed it was made with."""
        return self._seed

    def uniform(self, place: int, purpose: int = DRAW, attempt: int = 0) -> float:
        """A random number in [0, 1), of 53 bits: a pure function of the seed and the arguments (0 to 2^64 - 1), by BLAKE2b."""
        key = struct.pack("<4Q", self._seed % (1 << 64), place, purpose, attempt)
        return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53

    def look(
        self,
        logits: Floats,
        history: Sequence[int],
        *,
        mask: npt.NDArray[np.uint32] | None = None,
        only: npt.NDArray[np.int64] | None = None,
        blocked: Collection[int] = (),
    ) -> Look:
        """The final distribution of the token after `history`, prompt and reply so far. logits (V,) float32 stays as it is.

        A token must be allowed by everything given: `mask` as in `engine.constraint.filter`, bits beyond it are not set; `only`
        ids, in any order; not `blocked`. Raises EngineError when the logits hold NaN or +inf or are all -inf, and
        NothingAllowed when no token is left.
        """
        if logits.ndim != 1 or logits.dtype != np.float32 or not logits.shape[0]:
            raise ValueError(f"logits are {logits.dtype} {logits.shape}, but must be float32 (V,)")
        if logits.shape[0] != self._size:
            self._resize(logits.shape[0])
        logits = logits[: self._tables.vocabulary or None]
        if not np.isfinite(logits.max()):
            raise EngineError(
                "The model's scores for the next token are not finite numbers, so none can be drawn; "
                "its file may be damaged: fetch it again or choose another model."
            )
        with np.errstate(over="ignore", invalid="ignore"):  # a difference beyond float32 is -inf, which is what is meant
            candidates = self._candidates(logits, mask, only, blocked)
            notes = self._apply(candidates, history)
            distribution = certain(candidates.id_at(candidates.best())) if self._greedy else candidates.distribution()
        return Look(distribution, len(history), logits, notes)

    def draw(self, look: Look, *, attempt: int = 0, top: int = 0, alternatives: int = 0) -> Sampled:
        """Draw a token and take it. `attempt` asks for another random number at the same place."""
        uniform = 0.0 if look.distribution.greedy else self.uniform(look.place, DRAW, attempt)
        return self.take(look, look.distribution.draw(uniform), top=top, alternatives=alternatives)

    def take(self, look: Look, token: int, *, top: int = 0, alternatives: int = 0) -> Sampled:
        """The token that comes at this place, however it was chosen: learn from it, and tell of it.

        `top` asks for that many of the likeliest candidates, `alternatives` for so many of the model's own likeliest tokens.
        """
        for step in self._steps:
            if step.learns:
                probability = look.notes[step.name].probability(token)
                if probability > 0.0:
                    self._memory = step.learn(self._memory, probability)
        final = look.distribution
        raw = RawDistribution(look.logits, self._space, with_entropy=alternatives > 0)
        others = tuple((id, raw.probability(id), final.probability(id)) for id in raw.likeliest(alternatives))
        return Sampled(token, final.probability(token), raw.probability(token), final.likeliest(top), others, raw.entropy)

    def sample(
        self,
        logits: Floats,
        history: Sequence[int],
        *,
        mask: npt.NDArray[np.uint32] | None = None,
        only: npt.NDArray[np.int64] | None = None,
        blocked: Collection[int] = (),
        banned: Collection[int] = (),
        attempt: int = 0,
        top: int = 0,
        alternatives: int = 0,
    ) -> Sampled:
        """`look` and `draw` in one. `banned` is another name of `blocked`."""
        look = self.look(logits, history, mask=mask, only=only, blocked=[*blocked, *banned])
        return self.draw(look, attempt=attempt, top=top, alternatives=alternatives)

    def snapshot(self) -> object:
        """What was learnt from the tokens so far, unchanging. Random numbers and histories need no snapshot."""
        return self._memory

    def restore(self, snapshot: object) -> None:
        """Forget what was learnt since `snapshot` gave this."""
        assert isinstance(snapshot, Memory)
        self._memory = snapshot

    def _resize(self, size: int) -> None:
        """Everything that depends on the size of the vocabulary, padding included."""
        self._size = size
        inside = min(size, self._tables.vocabulary or size)
        self._space = Workspace(inside)
        self._history = History(self._reach, size, self._fade)
        self._added = _table_of_scores(self._tables, inside)

    def _candidates(
        self,
        logits: Floats,
        mask: npt.NDArray[np.uint32] | None,
        only: npt.NDArray[np.int64] | None,
        blocked: Collection[int],
    ) -> Candidates:
        candidates, size = Candidates(logits, self._space), logits.shape[0]
        if self._added is not None:
            candidates.add_everywhere(self._added)
        if blocked:
            candidates.drop(np.asarray([token for token in blocked if 0 <= token < size], np.int64))
        if mask is not None:
            candidates.allow(mask)
        if only is not None:
            ids = np.unique(only).astype(np.int64)
            candidates.keep_ids(ids[(ids >= 0) & (ids < size)])
        if candidates.largest == -np.inf:
            raise NothingAllowed("Every token that the model could write next is banned or not allowed; take some of the bans away.")
        return candidates

    def _apply(self, candidates: Candidates, history: Sequence[int]) -> Mapping[str, Distribution]:
        if self._uses_history:
            self._history.update(history)
        if self._uses_repeats:
            self._repeats.update(history)
        place = len(history)
        state = SamplerState(self._history, self._repeats, self._tables, self._memory, lambda purpose: self.uniform(place, purpose))
        for step in self._steps:
            if step.learns or len(candidates) > 1:
                step.apply(candidates, state)
        return state.notes


def _table_of_scores(tables: TokenTables, size: int) -> Floats | None:
    """(size,) float32: what bias, allowed and banned tokens add to each score; None for nothing."""
    if not tables.bias and tables.allowed is None and not tables.banned:
        return None
    added = np.zeros(size, np.float64)
    for token, amount in tables.bias:
        if 0 <= token < size:
            added[token] += amount
    if tables.allowed is not None:
        refused = np.ones(size, bool)
        refused[[token for token in tables.allowed if 0 <= token < size]] = False
        added[refused] = -np.inf
    added[[token for token in tables.banned if 0 <= token < size]] = -np.inf
    return added.astype(np.float32)
