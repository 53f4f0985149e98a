"""The protocol of drafters, which propose how a sequence continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.sampling.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Proposal:
    """A drafted token and the distribution it was sampled from; None if it was certain."""

    id: int
    distribution: Distribution | None = None


class Drafter(Protocol):
    """Proposes tokens for one generator, sequence after sequence. Used by one thread."""

    def begin(self, ids: Sequence[int]) -> None:
        """Start a sequence with this prompt."""
        ...

    def propose(self, ids: Sequence[int], count: int) -> list[Proposal]:
        """At most `count` proposals of what follows `ids`, prompt and reply so far.

        `ids` may have been truncated since the last call.
        """
        ...

    def close(self) -> None:
        """Release what the sequence holds (cache pages); `begin` may follow."""
        ...
