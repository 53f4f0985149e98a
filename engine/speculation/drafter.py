"""The protocol of drafters, which guess how a sequence continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.sampling.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Proposal:
    """A guessed token, and the distribution it was sampled from; None if the guess was certain."""

    id: int
    distribution: Distribution | None = None


class Drafter(Protocol):
    """Guesses for one generator, sequence after sequence. Used by one thread."""

    def begin(self, ids: Sequence[int]) -> None:
        """A new sequence starts with this prompt."""
        ...

    def propose(self, ids: Sequence[int], count: int) -> list[Proposal]:
        """At most `count` guesses of what follows `ids`, prompt and reply so far; `ids` may have been cut
        since the last call.
        """
        ...

    def close(self) -> None:
        """Release what the sequence held (cache pages); `begin` may follow."""
        ...
