"""Decoding that runs on the device, sampling included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from engine.lazy_dataclass import dataclass
from engine.tensors import Floats, Ints

if TYPE_CHECKING:
    from engine.sampling.sampler import Sampled

KEPT_LOGITS = 16
"""The number of latest steps whose logits a decode loop keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingPlan:
    """How a device samples, as `engine.sampling` does: bias, penalties, `steps` in order, then the sample.

    Ids from `vocabulary` on are never sampled. `bias` (V,) float32 is added to the logits; it is -inf for
    tokens that are not allowed. `repetition`, `presence` and `frequency` are the penalties of
    `engine.sampling.penalties` over the last `reach` tokens (-1: all) and, fading, `fade` more;
    `repetition_first` is their order. `steps` are (code, number) of `engine.sampling.passes`; `greedy` takes
    the most probable token. `top` and `alternatives` are those of `Sampled`. The text is likely to end with
    one of `ends`, so that further steps would be in vain.
    """

    vocabulary: int
    steps: tuple[tuple[int, float], ...] = ()
    greedy: bool = False
    bias: Floats | None = None
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    reach: int = -1
    fade: int = 0
    repetition_first: bool = True
    top: int = 0
    alternatives: int = 0
    ends: frozenset[int] = frozenset()

    @property
    def penalises(self) -> bool:
        """Whether earlier tokens are penalised."""
        return self.reach != 0 and (self.repetition != 1.0 or self.presence != 0.0 or self.frequency != 0.0)


class DecodeLoop(Protocol):
    """Runs whole steps, sampling included, ahead of the host: while the host reads token n, a GPU computes
    n + 1; a CPU computes several tokens before the host reads the first of them.

    Between `start` and `close` the program runs nothing else. A surplus step does no harm: it writes past the
    end of the text, where later steps write before they read.
    """

    @property
    def ahead(self) -> int:
        """How many steps `next` would begin now, beyond those under way."""
        ...

    @property
    def under_way(self) -> int:
        """How many steps have begun whose tokens were not taken yet."""
        ...

    def start(
        self,
        ids: Sequence[int],
        pages: Ints,
        uniform: Callable[[int], float],
        states: tuple[int, int] | None = None,
        shift: int = 0,
    ) -> None:
        """Begin a step with the last of `ids`, the whole text; the cache holds the others.

        May be called again. `pages` is the block table; `uniform(place)` is the random number in [0, 1) for
        the token at a place; `states` are those of the step, as in `Step.states`. Rope positions are `shift`
        less than positions.
        """
        ...

    def set_state(self, length: int, number: int) -> None:
        """Set the number of the state after the first `length` tokens, for steps that begin after this call;
        those that run may still use the two before it.
        """
        ...

    def set_pages(self, pages: Ints) -> None:
        """Set the block table for the steps that begin after this call."""
        ...

    def next(self, further: int) -> Sampled | None:
        """Wait for the next token; begin `further` steps first, at most `ahead`.

        The cache must have room for every step that begins. Returns None if the device cannot sample this
        token because its logits are NaN, no token is allowed, or too many candidates are left: the caller
        then samples from `logits`.
        """
        ...

    def logits(self, place: int) -> Floats:
        """A copy of the logits (V,) of the token at `place`, one of the latest `KEPT_LOGITS` that were taken
        or are under way.
        """
        ...

    def close(self) -> None:
        """End the decode loop; the result of a step that is still running is dropped."""
        ...


@runtime_checkable
class HasDecodeLoop(Protocol):
    """A program that can run a decode loop."""

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """A decode loop, one at a time; None if it cannot sample by this plan."""
        ...
