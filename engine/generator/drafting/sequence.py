"""Drafting of one sequence: the drafter, and the controller that says how many guesses pay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

from engine.core import FIRST_PICTURE_ID
from engine.generator.sequence import TokenSequence
from engine.kv_cache.lease import Lease
from engine.models.pictures import STAND_IN
from engine.speculation.assistant import AssistantDrafter
from engine.speculation.draft_length import DraftLengthController
from engine.speculation.drafter import Drafter
from engine.speculation.mtp import MtpDrafter
from engine.speculation.ngram import NgramDrafter, usual_cost
from engine.tensors import Floats

P = ParamSpec("P")
R = TypeVar("R")
Hear = Callable[[int, Sequence[int], Floats], None]
"""As `SequenceRunner.heard`."""


class Drafting:
    """What the loop asks before each pass. Without a drafter there are no proposals, and nothing is timed."""

    def __init__(
        self, drafter: Drafter | None = None, draft_length: DraftLengthController | None = None
    ) -> None:
        self._drafter = drafter
        self._draft_length = draft_length
        # of the pass: drafting, running and deciding, without the time of whoever reads the events
        self._seconds = 0.0
        self._drafted = 0
        self._running = False
        self._prompt: list[int] = []  # without pictures; empty if it has none

    none: Sequence[int] = ()

    @property
    def active(self) -> bool:
        """Whether there may be proposals."""
        return self._drafter is not None and self._draft_length is not None

    def timed(self, work: Callable[P, R]) -> Callable[P, R]:
        """`work`, timed as a part of the pass if draft lengths depend on it."""
        if self._draft_length is None:
            return work

        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.perf_counter()
            result = work(*args, **kwargs)
            self._seconds += time.perf_counter() - started
            return result

        return watched

    def spent(self, seconds: float) -> None:
        """Add the time that the model's pass took."""
        self._seconds += seconds

    @property
    def speedup(self) -> float:
        """Measured speed with drafting over the speed without; 0 while unknown."""
        return self._draft_length.speedup if self._draft_length is not None else 0.0

    def follow(self, ids: Sequence[int], lease: Callable[[], Lease]) -> Hear | None:
        """A prompt is about to be read, whose lease `lease` gives from then on; returns what is to hear of
        each pass, as `SequenceRunner.heard`.
        """
        if self._drafter is not None and max(ids) >= FIRST_PICTURE_ID:
            self._prompt = without_pictures(ids)
        if isinstance(self._drafter, AssistantDrafter):
            self._drafter.follow(lease)
        elif isinstance(self._drafter, MtpDrafter):
            self._drafter.follow(self._prompt or ids)
        else:
            return None
        hear = self._drafter.hear
        return partial(_hear_without_pictures, hear) if self._prompt else hear

    def _text(self, ids: Sequence[int]) -> Sequence[int]:
        """A text that begins with the prompt, as the drafter reads it."""
        return [*self._prompt, *ids[len(self._prompt) :]] if self._prompt else ids

    def begin(self, ids: Sequence[int]) -> None:
        """The prompt is read."""
        if self._drafter is not None:
            self._drafter.begin(self._text(ids))

    def propose(self, sequence: TokenSequence, room: int, most: int | None = None) -> Sequence[int]:
        """Guesses for the next pass: as many as pay, fit into the context and may still be written.

        `most` is the limit beside other sequences.
        """
        if self._drafter is None or self._draft_length is None:
            return ()
        # Beside other sequences, times say nothing of drafting: they are neither used nor recorded.
        shared = most is not None
        self._seconds, self._running = 0.0, not shared
        limit = sequence.params.rules.max_tokens
        left = limit - sequence.new_tokens - 1 if limit else room
        length = self._draft_length.longest if shared else self._draft_length.next_length()
        count = max(0, min(length, room, left))
        if most is not None:
            count = min(count, most)
        if isinstance(self._drafter, NgramDrafter):  # which cuts its guesses itself
            self._drafter.extra_cost = (
                self._draft_length.extra_cost if self._draft_length.adaptive else usual_cost
            )
        proposals = self.timed(self._drafter.propose)(self._text(sequence.ids), count) if count else []
        self._drafted = len(proposals)
        return proposals

    def passed(self, decided: int) -> None:
        """The latest pass gave this many tokens."""
        if self._running and self._draft_length is not None:
            self._draft_length.record(self._drafted, decided - 1, decided, self._seconds)
        self._running = False

    def suspend(self) -> None:
        """Release the pages that the drafter holds, until it proposes again."""
        if self._drafter is not None:
            self._drafter.suspend()

    def close(self) -> None:
        """Release what the drafter holds of this sequence."""
        if self._drafter is not None:
            self._drafter.close()


def without_pictures(ids: Sequence[int]) -> list[int]:
    """The ids with another token in place of each token of a picture: no drafter reads pictures, and which
    token it reads there changes guesses alone.
    """
    return [id if id < FIRST_PICTURE_ID else STAND_IN for id in ids]


def _hear_without_pictures(hear: Hear, start: int, ids: Sequence[int], states: Floats) -> None:
    hear(start, without_pictures(ids), states)
