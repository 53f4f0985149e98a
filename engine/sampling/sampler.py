"""The sampler of one sequence: applies the active steps to a row of logits and chooses a token.

`distribution` computes what may follow. `sample_from` draws a token from it; `commit` learns from the token
and reports it. `sample` does all of this.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.core.tuples import maker
from engine.errors import NotFinite, NothingAllowed
from engine.lazy_dataclass import dataclass
from engine.sampling import kernels, ordered_steps
from engine.sampling.candidates import Candidates, Floats
from engine.sampling.distribution import Distribution, certain
from engine.sampling.history import History
from engine.sampling.masks import Workspace
from engine.sampling.raw import RawDistribution
from engine.sampling.repeats import Repeats
from engine.sampling.selection import Scores, column_maxima
from engine.sampling.step import Feedback, SamplerState, SamplerStep
from engine.sampling.tables import TokenTables
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings
from engine.words import N_, _, translate

SAMPLE = 0
"""The purpose of the random number that chooses a token (`Sampler.uniform`)."""

_KEY = struct.Struct("<4Q")
_FLOAT32, _PACKED = np.dtype(np.float32), (4,)
_NOT_FINITE = N_(
    "The model's scores for the next token are not finite numbers, so no token can be sampled; its "
    "file may be damaged. Download it again or choose another model."
)
SHORT_HEAD = 16
"""Tokens in a top-k scan if top-k does not set the number: enough for the alternatives shown."""


class Sampled(NamedTuple):
    """A sampled token.

    `probability` is its final one, after all steps; `raw_probability` is the softmax of the raw logits.
    `top` holds (id, final probability) of the likeliest remaining candidates, likeliest first, at most as
    many as requested; greedy sampling leaves one candidate, with probability 1. `alternatives` holds (id,
    raw probability, final probability) of the model's own likeliest tokens; `entropy` is that of the raw
    probabilities in nats, 0 unless alternatives are requested.
    """

    id: int
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()
    alternatives: tuple[tuple[int, float, float], ...] = ()
    entropy: float = 0.0


_sampled = maker(Sampled)


def sampled_by(found: kernels.PickedToken) -> Sampled:
    """What `kernels.Pick` found, which must be a token."""
    token, final, raw, entropy, reported = found
    others = tuple(zip(map(int, reported[::3]), reported[1::3], reported[2::3], strict=True))
    return _sampled((token, final, raw, (), others, entropy))


@dataclass(frozen=True, slots=True)
class TokenDistribution:
    """What may follow at one position: the `final` distribution, after all steps.

    `logits` are the model's own and must not change before a token is committed. `place` is the number of
    tokens before it. `maxima` are the logits' `column_maxima` and `scan` their top-k scan, both valid until
    the sampler's next distribution. `notes` are for the steps that learn from the committed token.
    """

    final: Distribution
    place: int
    logits: Floats
    maxima: Scores | None
    notes: Mapping[str, Distribution]
    scan: kernels.TopKScan | None = None


class Sampler:
    """Chooses tokens for one sequence.

    Equal settings, seed, logits and texts give equal ids, bit for bit, on one machine.

    Random numbers belong to positions in the text, not to calls, so rewinding, drafting and continuing a text
    later reproduce the same tokens. The seed is the argument; `settings.seed` is ignored. With `races`,
    tokens are drawn by `Distribution.race`, so that another model's sampler with the same seed nearly always
    draws the same tokens from nearly the same distributions.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        seed: int,
        tables: TokenTables = TokenTables(),
        *,
        races: bool = False,
    ) -> None:
        steps = tuple(
            step for kind in ordered_steps(settings.order) if (step := kind.from_settings(settings)).active
        )
        self._greedy = Temperature.from_settings(settings).greedy
        self._steps: tuple[SamplerStep, ...] = (
            tuple(step for step in steps if step.when_greedy) if self._greedy else steps
        )
        self._likeliest = self._greedy and not self._steps
        self._races = races and not self._greedy
        self._learning = tuple(step for step in self._steps if step.learns)
        self._uses_history = any(step.uses_history for step in self._steps)
        self._uses_repeats = any(step.uses_repeats for step in self._steps)
        self._reach, self._fade = settings.repetition_range, settings.repetition_decay
        self._seed = seed
        self._tables = tables
        self._feedback = Feedback(2 * settings.mirostat_tau, settings.adaptive_target)
        self._repeats = Repeats(tables.dry_breakers)
        # The scan covers what top-k keeps, or else the start of a nucleus.
        self._head = (
            settings.top_k
            if not self._likeliest and 0 < settings.top_k <= kernels.LONGEST_HEAD
            else SHORT_HEAD
        )
        self._room = kernels.ScanBuffers()
        first = next((step.name for step in self._steps if step.name != "temperature"), "")
        self._narrow = first == "top_k" and settings.top_k == self._head
        compiled = [step.compiled_step() for step in self._steps]
        self._usual = (
            None
            if not self._likeliest and (not self._narrow or None in compiled)
            else [step for step in compiled if step is not None]
        )
        self._resize(0)

    @property
    def seed(self) -> int:
        """The seed given at construction."""
        return self._seed

    def uniform(self, place: int, purpose: int = SAMPLE, attempt: int = 0) -> float:
        """A random number in [0, 1) with 53 bits: a pure function (BLAKE2b) of the seed and the arguments.

        The arguments are between 0 and 2^64 - 1.
        """
        key = _KEY.pack(self._seed % (1 << 64), place, purpose, attempt)
        return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53

    def distribution(
        self,
        logits: Floats,
        history: Sequence[int],
        *,
        mask: npt.NDArray[np.uint32] | None = None,
        only: npt.NDArray[np.int64] | None = None,
        blocked: Collection[int] = (),
    ) -> TokenDistribution:
        """The distribution of the token after `history`, the prompt and reply so far.

        `logits` (V,) float32 stay unchanged. A token must satisfy every restriction: its bit is set in `mask`
        (as in `engine.constraint.filter`; tokens beyond it are disallowed), it is in `only` (in any order),
        and it is not in `blocked`. Raises EngineError if the logits hold NaN or +inf or are all -inf, and
        NothingAllowed if no token is left.
        """
        if logits.ndim != 1 or logits.dtype != np.float32 or not logits.shape[0]:
            raise ValueError(f"logits are {logits.dtype} {logits.shape}, but must be float32 (V,)")
        if logits.shape[0] != self._size:
            self._resize(logits.shape[0])
        logits = logits[: self._tables.vocabulary or None]
        maxima, scan = self._scan(logits)
        restricted = self._restricted or mask is not None or only is not None or bool(blocked)
        if self._likeliest and scan is not None and not restricted:
            return TokenDistribution(certain(int(scan.ids[0])), len(history), logits, maxima, {}, scan)
        candidates = Candidates(logits, self._space, maxima, scan)
        # top-k comes first and the scan holds its result, so nothing can overflow
        if self._narrow and scan is not None and not restricted:
            distribution, notes = self._apply(candidates, history)
            return TokenDistribution(distribution, len(history), logits, maxima, notes, scan)
        # a difference that overflows float32 is -inf, as intended
        with np.errstate(over="ignore", invalid="ignore"):
            if restricted:
                self._restrict(candidates, mask, only, blocked)
            distribution, notes = self._apply(candidates, history)
        return TokenDistribution(distribution, len(history), logits, maxima, notes, scan)

    def _scan(self, logits: Floats) -> tuple[Scores | None, kernels.TopKScan | None]:
        """The column maxima and, for large vocabularies, the scan. Raises NotFinite for invalid logits."""
        if logits.shape[0] >= kernels.MIN_SCANNED:
            scan = kernels.top_k_scan(logits, self._head, self._room)
            if scan is not None:
                return scan.maxima, scan
        else:
            maxima = column_maxima(logits)
            if np.isfinite((logits if maxima is None else maxima).max()):
                return maxima, None
        raise NotFinite(translate(_NOT_FINITE))

    def sample_from(
        self, distribution: TokenDistribution, *, attempt: int = 0, top: int = 0, alternatives: int = 0
    ) -> Sampled:
        """Sample a token and commit it. `attempt` selects another random number at the same position."""
        token = self.token(distribution, attempt)
        return self.commit(distribution, token, top=top, alternatives=alternatives)

    def token(self, distribution: TokenDistribution, attempt: int = 0) -> int:
        """The token that `sample_from` draws, without learning from it."""
        final = distribution.final
        uniform = 0.0 if final.greedy else self.uniform(distribution.place, SAMPLE, attempt)
        return final.race(uniform) if self._races else final.sample(uniform)

    def commit(
        self, distribution: TokenDistribution, token: int, *, top: int = 0, alternatives: int = 0
    ) -> Sampled:
        """Learn from the token at this position, however it was chosen, and report it.

        `top` is the number of likeliest candidates to report, `alternatives` that of the model's own
        likeliest tokens.
        """
        for step in self._learning:
            probability = distribution.notes[step.name].probability(token)
            if probability > 0.0:
                self._feedback = step.learn(self._feedback, probability)
        final = distribution.final
        raw = RawDistribution(distribution.logits, distribution.maxima, distribution.scan)
        ids = [token, *(raw.likeliest(alternatives) if alternatives else ())]
        (_unused, own, own_final), *others = zip(
            ids, map(raw.probability, ids), final.probabilities_of(ids), strict=True
        )
        return Sampled(
            token, own_final, own, final.likeliest(top), tuple(others), raw.entropy if alternatives else 0.0
        )

    def sample(
        self,
        logits: Floats,
        history: Sequence[int],
        *,
        mask: npt.NDArray[np.uint32] | None = None,
        only: npt.NDArray[np.int64] | None = None,
        blocked: Collection[int] = (),
        attempt: int = 0,
        top: int = 0,
        alternatives: int = 0,
    ) -> Sampled:
        """`distribution` and `sample_from` together; in the usual case, one compiled call."""
        if logits.shape != self._shape and logits.ndim == 1:
            self._resize(logits.shape[0])
        known = logits.shape == self._shape and logits.strides == _PACKED and logits.dtype is _FLOAT32
        if (
            known
            and self._pick is not None
            and not (blocked or top)
            and mask is None
            and only is None
            and alternatives <= self._head
        ):
            inside = logits if self._inside == self._size else logits[: self._inside]
            uniform = 0.0 if self._likeliest else self.uniform(len(history), SAMPLE, attempt)
            found = self._pick(inside, uniform, alternatives)
            if found[0] < 0:
                raise NotFinite(translate(_NOT_FINITE))
            return sampled_by(found)
        distribution = self.distribution(logits, history, mask=mask, only=only, blocked=blocked)
        return self.sample_from(distribution, attempt=attempt, top=top, alternatives=alternatives)

    def snapshot(self) -> object:
        """An immutable copy of what was learned from the tokens so far.

        Random numbers and histories need no snapshot.
        """
        return self._feedback

    def restore(self, snapshot: object) -> None:
        """Return to the state of `snapshot`."""
        assert isinstance(snapshot, Feedback)
        self._feedback = snapshot

    def _resize(self, size: int) -> None:
        """Set up everything that depends on `size`, the size of the vocabulary including padding."""
        self._size = size
        inside = min(size, self._tables.vocabulary or size)
        self._inside, self._shape = inside, (size,)
        self._space = Workspace(inside)
        self._history = History(self._reach, size, self._fade)
        bias: dict[int, float] = {}
        for token, amount in self._tables.bias:
            bias[token] = bias.get(token, 0.0) + amount
        self._banned = _ids_inside(
            {*self._tables.banned, *(token for token in bias if bias[token] == -np.inf)}, inside
        )
        self._biased = _ids_inside((token for token in bias if bias[token] > -np.inf), inside)
        self._bias = np.asarray([bias[token] for token in self._biased.tolist()], np.float32)
        allowed = self._tables.allowed
        self._allowed = None if allowed is None else _ids_inside(allowed, inside)
        self._restricted = bool(self._biased.shape[0] or self._banned.shape[0] or self._allowed is not None)
        self._pick: kernels.Pick | None = None
        if (
            self._usual is not None
            and not (self._restricted or self._races)
            and inside >= kernels.MIN_SCANNED
        ):
            self._pick = kernels.Pick(self._room, self._head, None if self._likeliest else self._usual)

    def _restrict(
        self,
        candidates: Candidates,
        mask: npt.NDArray[np.uint32] | None,
        only: npt.NDArray[np.int64] | None,
        blocked: Collection[int],
    ) -> None:
        """Drop everything that is not allowed, and add the bias."""
        size = len(candidates)
        if mask is not None:
            candidates.allow(mask)
        if self._biased.shape[0] and not candidates.empty:
            scores, places, which = candidates.edit(self._biased)
            scores[places] += self._bias[which]
        if blocked or self._banned.shape[0]:
            inside = np.asarray([token for token in blocked if 0 <= token < size], np.int64)
            candidates.drop_ids(np.concatenate((self._banned, inside)))
        if self._allowed is not None:
            candidates.keep_ids(self._allowed)
        if only is not None:
            candidates.keep_ids(_ids_inside(np.unique(only).tolist(), size))
        if candidates.empty:
            raise NothingAllowed(
                _("Every token that could come next is banned or not allowed; remove some of the bans.")
            )

    def _apply(
        self, candidates: Candidates, history: Sequence[int]
    ) -> tuple[Distribution, Mapping[str, Distribution]]:
        """The distribution after all steps, and their notes."""
        if self._uses_history:
            self._history.update(history)
        if self._uses_repeats:
            self._repeats.update(history)
        place = len(history)
        state = SamplerState(
            self._history,
            self._repeats,
            self._tables,
            self._feedback,
            lambda purpose: self.uniform(place, purpose),
        )
        for step in self._steps:
            if step.learns or len(candidates) > 1:
                step.apply(candidates, state)
        if self._greedy:
            return certain(candidates.id_at(candidates.best())), state.notes
        return candidates.distribution(), state.notes


def _ids_inside(ids: Iterable[int], size: int) -> npt.NDArray[np.int64]:
    """(n,) the ids between 0 and `size` - 1, ascending."""
    return np.asarray(sorted(token for token in ids if 0 <= token < size), np.int64)
