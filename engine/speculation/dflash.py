"""Drafting with a DFlash drafter (`engine.models.drafting.dflash`): all guesses of a draft in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from engine.models.drafting.dflash import BLOCK, CONTEXT
from engine.speculation.mtp import MtpDrafter
from engine.tensors import Floats

if TYPE_CHECKING:
    from engine.models.drafting.dflash import DFlashModel


class DFlashDrafter(MtpDrafter):
    """An `MtpDrafter` whose entries are those of the context. A block's are made anew for each draft."""

    @property
    def _drafter(self) -> DFlashModel:
        return cast("DFlashModel", self.cache.model)

    def _draft(self, ids: list[int], count: int, guesses: list[int]) -> None:
        config, last = self._drafter.config, len(ids) - 2
        count = min(count, config.block - 1, self.cache.rows - 1, self.cache.context_length - len(ids))
        self._forget(ids)
        places = self._ready(last, lambda place: ids[place + 1], ids)
        if count < 1 or self._stopped() or (places or self._places)[-1:] != [last]:
            return
        most = self.cache.rows - 1 - count
        while len(places) > most:  # a prompt: all but its end is read without a block
            part, places = places[: self.cache.rows], places[self.cache.rows :]
            self._run([ids[place + 1] for place in part], [self._waiting[place][1] for place in part])
            self._places += part
        text = list(ids)
        for logits in self._block(ids, places, count):
            proposal = self._next(logits[: self._shared], text)
            if proposal is None:
                break
            guesses.append(proposal)
            text.append(proposal)
        self._drop_old(last)

    def _block(self, ids: list[int], places: list[int], count: int) -> Floats:
        """Run what is left of the context, and a block; returns the logits (count, V) of its masks."""
        lease, given = self._resumed(), self._drafter.given
        for row, place in enumerate(places):
            given[row, :-2], given[row, -2:] = self._waiting[place][1], CONTEXT
        given[len(places) : len(places) + 1 + count] = (*np.zeros(given.shape[1] - 2), *BLOCK)
        tokens = [*(ids[place + 1] for place in places), ids[-1], *[self._drafter.config.mask] * count]
        logits = self.cache.run(lease, tokens, count + 1)[1:]
        self._places += places
        lease.truncate(len(self._places))
        return logits

    def _run(self, tokens: list[int], states: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Run entries of the context, whose results are nothing."""
        given = self._drafter.given
        given[: len(tokens), -2:] = CONTEXT
        given[: len(tokens), :-2] = states
        logits = self.cache.run(self._resumed(), tokens)[-1]
        return logits, logits
