"""The protocol of drafters, which propose how a sequence continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """Proposes tokens for one generator, sequence after sequence. Used by one thread.

    Proposals decide nothing: the target chooses its tokens as it would without them, and those that are equal
    have saved a pass.
    """

    def begin(self, ids: Sequence[int]) -> None:
        """Start a sequence with this prompt."""
        ...

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """At most `count` token ids that may follow `ids`, prompt and reply so far.

        `ids` may have been truncated since the last call.
        """
        ...

    def suspend(self) -> None:
        """Release what the sequence holds (cache pages) until the next call of `propose`."""
        ...

    def close(self) -> None:
        """Release what the sequence holds; `begin` may follow."""
        ...
