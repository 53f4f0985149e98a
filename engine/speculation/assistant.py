"""Drafting with an assistant, which reads the cache of the model that it drafts for
(`engine.models.drafting.assistant`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.sampling.sampler import Sampler
from engine.speculation.draft_model import DraftModel
from engine.tensors import Floats

if TYPE_CHECKING:
    from engine.kv_cache.lease import Lease
    from engine.models.drafting.assistant import AssistantModel
    from engine.models.paged import PagedCache

_MOST_STATES = 32
"""The last hidden states that are kept; drafts, and what is taken back, are among them."""


class AssistantDrafter(DraftModel):
    """A `Drafter` that hears of every pass of the target model: `follow` its lease, then `hear`.

    `cache` is the target's. Where the hidden state of the last token but one is not known, as after much was
    taken back, or its keys and values are not there, nothing is proposed.
    """

    def __init__(
        self,
        cache: PagedCache,
        sampler_factory: Callable[[], Sampler],
        *,
        assistant: AssistantModel,
        vocabulary: int = 0,
        threshold: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(cache, sampler_factory, vocabulary=vocabulary, threshold=threshold, stop=stop)
        self._assistant = assistant
        self._target: Callable[[], Lease] | None = None
        self._states: dict[int, tuple[int, Floats]] = {}  # by position: the token there, its hidden state

    def follow(self, lease: Callable[[], Lease]) -> None:
        """Begin a sequence, whose prompt has not been read yet; `lease` gives the target's at any time."""
        self.close()
        self._sampler = self.sampler_factory()
        self._target = lease

    def begin(self, ids: Sequence[int]) -> None:
        """The prompt is read: nothing more to do."""

    def hear(self, start: int, ids: Sequence[int], states: Floats) -> None:
        """The target has run `ids` from position `start` on; `states` (T, E) are their hidden states."""
        end = start + len(ids)
        for place in range(max(start, end - _MOST_STATES), end):
            self._states[place] = ids[place - start], states[place - start].copy()
        for place in [place for place in self._states if place < end - _MOST_STATES]:
            del self._states[place]

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """At most `count` proposals."""
        guesses: list[int] = []
        count, known = min(count, self.cache.context_length - len(ids) + 1), len(ids) - 1
        if count < 1 or known < 1 or self._target is None or self._stopped():
            return guesses
        lease, (before, state) = self._target(), self._states.get(known - 1, (-1, None))
        if state is None or before != ids[known - 1] or lease.length < known:
            return guesses
        pages, text = self.cache.pages_up_to(lease, known), list(ids)
        while len(guesses) < count and not self._stopped():
            logits, state = self._assistant.guess(text[-1], state, known, pages)
            proposal = self._next(logits[: self._shared], text)
            if proposal is None:
                break
            guesses.append(proposal)
            text.append(proposal)
        return guesses

    def close(self) -> None:
        """Forget the sequence."""
        super().close()
        self._target, self._states = None, {}
