"""Drafting with a smaller model, which follows the text in its own KV cache and samples the draft tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from engine.core import Prefill
from engine.errors import ContextTooLong
from engine.sampling.sampler import Sampler
from engine.tensors import Floats

if TYPE_CHECKING:
    from engine.kv_cache.lease import Lease
    from engine.models.paged import PagedCache

GREEDY_THRESHOLD, SAMPLED_THRESHOLD = 0.25, 0.1


class DraftModel:
    """A `Drafter` with a second model. Used by one thread; `close` returns the pages, not the cache.

    `sampler_factory` makes the sampler of a sequence at `begin`: the target's settings, without the steps
    that learn from sampled tokens (mirostat, adaptive p) or are random themselves (XTC), and the target's
    random numbers: with the same distribution as the target's it proposes the token that the target chooses.
    Only ids below `vocabulary`, the target's size, are proposed (0: all).

    Drafting stops when the model gives its likeliest token, before any sampler step, a probability
    below `threshold` (None: 0.25 for greedy, 0.1 for sampled proposals). Setting `stop` ends prefill and
    drafting after the running step.
    """

    def __init__(
        self,
        cache: PagedCache,
        sampler_factory: Callable[[], Sampler],
        *,
        vocabulary: int = 0,
        threshold: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.cache = cache
        self.sampler_factory = sampler_factory
        self.threshold = threshold
        self.stop = stop
        own = cache.model.config.vocab_size
        self._own_vocabulary = own
        self._shared = min(own, vocabulary or own)
        self._sampler = sampler_factory()
        self._lease: Lease | None = None
        self._agreed = 0  # leading tokens of the lease known to match the text at the last call

    def begin(self, ids: Sequence[int]) -> None:
        """Start a sequence with what the cache still holds of it; `catch_up` or `propose` runs the rest."""
        self.close()
        self._sampler = self.sampler_factory()
        self._lease = self.cache.open(_list(ids))
        self._agreed = self._lease.length

    def suspend(self) -> None:
        """Return the sequence's pages; what was run stays cached, and the rest is run again by `propose`."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def close(self) -> None:
        """Return the sequence's pages; what was run stays cached."""
        self.suspend()

    def catch_up(self, ids: Sequence[int]) -> Generator[Prefill, None, None]:
        """Prefill what the cache lacks of `ids`, except the last chunk, with progress after each chunk.

        Ends early when `stop` is set. Raises `ContextTooLong` if `ids` do not fit; `propose`
        then drafts nothing.
        """
        ids = _list(ids)
        lease = self._aligned(ids)
        cached, rows = lease.length, self.cache.rows
        while len(ids) - lease.length > rows and not self._stopped():
            self.cache.run(lease, ids[lease.length : lease.length + rows])
            self._agreed = lease.length
            yield Prefill(lease.length, len(ids), cached)

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """At most `count` proposals; none while `stop` is set or if the text does not fit this model."""
        ids = _list(ids)
        room = self.cache.context_length - len(ids) + 1
        guesses: list[int] = []
        if count < 1 or room < 1 or not ids or max(ids[self._aligned(ids).length :]) >= self._own_vocabulary:
            return guesses
        with suppress(ContextTooLong):  # other sequences hold the pages: draft no further
            self._guess(ids, min(count, room), guesses)
        return guesses

    def _guess(self, ids: list[int], count: int, guesses: list[int]) -> None:
        for _ in self.catch_up(ids):
            pass
        lease, text = self._aligned(ids), list(ids)
        waiting = text[lease.length :]
        while not self._stopped():
            logits = self.cache.run(lease, waiting)[-1]
            self._agreed = min(lease.length, len(ids))
            proposal = self._next(logits[: self._shared], text)
            if proposal is None:
                return
            guesses.append(proposal)
            if len(guesses) == count:
                return
            text.append(proposal)
            waiting = [proposal]

    def _next(self, logits: Floats, text: list[int], possible: Floats | None = None) -> int | None:
        """The proposal after `text`; None if it is too unlikely to be accepted. `possible` are the logits of
        the tokens that can be drafted (None: of all).
        """
        distribution = self._sampler.distribution(logits, text)
        threshold = self.threshold
        if threshold is None:
            threshold = GREEDY_THRESHOLD if distribution.final.greedy else SAMPLED_THRESHOLD
        possible = logits if possible is None else possible
        if threshold > 0.0 and float(np.exp(possible - possible.max()).sum()) * threshold > 1.0:
            return None
        return self._sampler.token(distribution)

    def _aligned(self, ids: list[int]) -> Lease:
        """The lease, truncated where it departs from `ids`; at least the last of `ids` is left to run."""
        if self._lease is None:
            self.begin(ids)
        lease = self._lease
        assert lease is not None
        known, limit = lease.ids, min(lease.length, len(ids) - 1)
        same = min(self._agreed, limit)
        if known[:same] != ids[:same]:
            same = 0
        while same < limit and known[same] == ids[same]:
            same += 1
        if same < lease.length:
            lease.truncate(same)
        self._agreed = same
        return lease

    def _stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()


def _list(ids: Sequence[int]) -> list[int]:
    return ids if isinstance(ids, list) else [int(token) for token in ids]
