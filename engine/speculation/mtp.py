"""Drafting with a head (`engine.models.drafting.head`): the model's own one for multi-token prediction, or
EAGLE-3.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import numpy as np

from engine.errors import ContextTooLong
from engine.sampling.sampler import Sampler
from engine.speculation.draft_model import DraftModel
from engine.tensors import Floats

if TYPE_CHECKING:
    from engine.kv_cache.lease import Lease
    from engine.models.drafting.head import HeadModel
    from engine.models.paged import PagedCache

Tails = dict[int, Floats]
"""Hidden states (E,) of the last tokens of texts, by the hash of the text."""
_MOST_TAILS = 64
_MOST_WAITING, _UNCERTAIN = 512, 16
"""Hidden states that may wait for the head, and the last ones, whose tokens may still be drafts."""


class MtpDrafter(DraftModel):
    """A `Drafter` that hears of every pass of the target model: `follow` a text, then `hear`.

    The head has a cache of its own, with an entry for each pair of a token and the hidden state before it.
    Entries for drafts are made again from the target's hidden states once these are known. Hidden states of
    tokens that the target has cached are not known; such pairs are left out, which makes guesses worse but
    never changes the text. `tails` fills the gap between a reply and the next message.
    """

    def __init__(
        self,
        cache: PagedCache,
        sampler_factory: Callable[[], Sampler],
        *,
        tails: Tails,
        vocabulary: int = 0,
        threshold: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(cache, sampler_factory, vocabulary=vocabulary, threshold=threshold, stop=stop)
        self._tails = tails
        self._waiting: dict[int, tuple[int, Floats]] = {}  # by position: the token there, its hidden state
        self._places: list[int] = []  # the positions of the hidden states of the lease's pairs
        self._text: Sequence[int] = ()
        self._pairs: list[int] = []  # the tokens of the pairs that a suspended sequence had

    @property
    def _head(self) -> HeadModel:
        return cast("HeadModel", self.cache.model)

    def follow(self, ids: Sequence[int]) -> None:
        """Begin a sequence, whose prompt has not been read yet."""
        super().begin([*ids[1:], -1])  # a cache leaves the last one out
        assert self._lease is not None
        found = self._lease.length
        self._text, self._places, self._waiting = ids, list(range(found)), {}
        tail = self._tails.get(_hash(ids[: found + 1]))
        if tail is not None:
            self._waiting[found] = ids[found], tail

    def begin(self, ids: Sequence[int]) -> None:
        """The prompt is read: nothing more to do."""

    def hear(self, start: int, ids: Sequence[int], states: Floats) -> None:
        """The target has run `ids` from position `start` on; `states` (T, E) are their hidden states."""
        for place, (token, state) in enumerate(zip(ids, states, strict=True), start):
            self._waiting[place] = token, state.copy()
        if len(self._waiting) > _MOST_WAITING:
            known = {place: token for place, (token, _) in self._waiting.items()}
            with suppress(ContextTooLong):
                self._run_pairs(max(self._waiting) - _UNCERTAIN, lambda place: known.get(place + 1, -1))

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """At most `count` proposals; none if the last hidden state is not known, or there are no pages."""
        guesses: list[int] = []
        self._text = ids
        with suppress(ContextTooLong):
            self._draft(list(ids), count, guesses)
        return guesses

    def suspend(self) -> None:
        """Return the pages. Pairs that are lost meanwhile are left out, unless the target reads their tokens
        again.
        """
        if self._lease is not None:
            self._pairs = self._lease.ids.copy()
        super().suspend()

    def _resumed(self) -> Lease:
        """The lease, opened again after `suspend`."""
        if self._lease is None:
            self._lease = self.cache.open([*self._pairs, -1])
            del self._places[self._lease.length :]
        return self._lease

    def _draft(self, ids: list[int], count: int, guesses: list[int]) -> None:
        self._forget(ids)
        made = self._run_pairs(len(ids) - 2, lambda place: ids[place + 1], ids)
        if made is None or self._places[-1:] != [len(ids) - 2]:
            return
        (logits, state), text = made, list(ids)
        while not self._stopped():
            all_logits = self._head.widened(logits)
            shared = all_logits[: self._shared]
            if len(logits) < len(all_logits) and shared.max() == -np.inf:
                return  # the tokens that can be drafted are none that the text can have
            few = logits if len(logits) < len(all_logits) else None
            proposal = self._next(shared, text, few)
            if proposal is None:
                return
            guesses.append(proposal)
            if len(guesses) >= count:
                return
            text.append(proposal)
            logits, state = self._run([proposal], [state])

    def _forget(self, ids: Sequence[int]) -> None:
        """Cut off what is not of this text: pairs of drafts, and what was taken back."""
        lease = self._resumed()
        for place in [place for place in self._waiting if place > len(ids) - 2]:
            del self._waiting[place]
        known, kept = lease.ids, len(self._places)
        while kept and not (
            self._places[kept - 1] <= len(ids) - 2 and known[kept - 1] == ids[self._places[kept - 1] + 1]
        ):
            kept -= 1
        del self._places[kept:]
        if lease.length > kept:
            lease.truncate(kept)

    def _run_pairs(
        self, last: int, token_after: Callable[[int], int], ids: Sequence[int] | None = None
    ) -> tuple[Floats, Floats] | None:
        """Run the pairs up to the hidden state of position `last`; returns the last logits (V,) and hidden
        state (E,), None if there was nothing to run.
        """
        places, made = self._ready(last, token_after, ids), None
        for first in range(0, len(places), self.cache.rows):
            part = places[first : first + self.cache.rows]
            made = self._run([token_after(place) for place in part], [self._waiting[p][1] for p in part])
            self._places += part
        self._drop_old(last)
        return made

    def _ready(
        self, last: int, token_after: Callable[[int], int], ids: Sequence[int] | None = None
    ) -> list[int]:
        """The positions of the hidden states up to `last` that can be run now."""
        self._resumed()
        done = self._places[-1] if self._places else -1
        return [
            place
            for place in sorted(self._waiting)
            if done < place <= last
            and (ids is None or self._waiting[place][0] == ids[place])
            and 0 <= token_after(place) < self._own_vocabulary
        ]

    def _drop_old(self, last: int) -> None:
        """Forget the hidden states that were run up to `last`, but for the latest."""
        for place in [place for place in self._waiting if place <= last - _UNCERTAIN]:
            del self._waiting[place]

    def _run(self, tokens: list[int], states: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Run pairs; returns the last logits (V,) and hidden state (E,)."""
        assert self._lease is not None
        head = self._head
        head.given[: len(tokens)] = states
        logits = self.cache.run(self._lease, tokens)[-1]
        return logits, head.kept[len(tokens) - 1].copy()

    def close(self) -> None:
        """Return the pages, with the pairs of the whole text where nothing was stopped."""
        if self._lease is not None and len(self._text) > 1:
            ids = list(self._text)
            self._forget(ids)
            if not self._stopped():
                with suppress(ContextTooLong):
                    self._run_pairs(len(ids) - 2, lambda place: ids[place + 1], ids)
            self._remember(ids)
        super().close()
        self._text, self._waiting = (), {}

    def _remember(self, ids: list[int]) -> None:
        for place in (len(ids) - 2, len(ids) - 1):
            if place in self._waiting:
                while len(self._tails) >= _MOST_TAILS:
                    del self._tails[next(iter(self._tails))]
                self._tails[_hash(ids[: place + 1])] = np.array(self._waiting[place][1])


def _hash(ids: Sequence[int]) -> int:
    return hash(tuple(ids))
