"""Choosing one token of a sequence: from the sampler's distribution, with a draft checked, and so that a
reply in a format can end in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.constraint.filter_set import Busy, FilterSet
from engine.constraint.vocabulary import Mask, vocabulary_of
from engine.errors import BadSetting, NothingAllowed
from engine.generator.params import ReturnOptions
from engine.sampling.sampler import Sampled, Sampler
from engine.sampling.tables import TokenTables
from engine.tensors import Floats
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

_MOST_TRIED = 3
"""Attempts at one place that leave the reply no time to end; after them the next token of the known ending
is taken.
"""


class Where(NamedTuple):
    """One place of a sequence: the `logits` (V,) float32 of the token after `ids`, the `only` ids that may be
    chosen (None: all), the `blocked` ones, and how many of these led to a banned text (`attempt`).
    """

    logits: Floats
    ids: Sequence[int]
    only: npt.NDArray[np.int64] | None
    blocked: Set[int]
    attempt: int


def choose_token(
    sampler: Sampler, where: Where, returns: ReturnOptions, mask: Mask | None, filters: FilterSet | None
) -> Sampled:
    """The token at a place. `mask` is that of the filters, which can still end in time after it.

    Raises `NothingAllowed` when no token can be chosen, and `Busy` when the filters need longer: the same
    call then chooses what it would have.
    """
    if filters is None or mask is None:
        return _chosen(sampler, where, returns, mask)
    before = sampler.snapshot()
    for tried in range(_MOST_TRIED + 1):
        try:
            sampled = _chosen(sampler, where, returns, mask, tried)
        except NothingAllowed:
            whole = filters.whole_mask()
            if mask is whole:
                raise
            # what is banned stays banned, even if the reply cannot end in time
            return _chosen(sampler, where, returns, whole, tried)
        try:
            if mask is None or tried == _MOST_TRIED or filters.fits(sampled.id):
                break
        except Busy:
            sampler.restore(before)
            raise
        sampler.restore(before)
        mask = filters.forced() if tried == _MOST_TRIED - 1 else _without(mask, sampled.id)
    return sampled


def _chosen(
    sampler: Sampler, where: Where, returns: ReturnOptions, mask: Mask | None, tried: int = 0
) -> Sampled:
    """As `choose_token`, without looking ahead; each try at one place has a random number of its own."""
    return sampler.sample(
        where.logits,
        where.ids,
        mask=mask,
        only=where.only,
        blocked=where.blocked,
        attempt=where.attempt + (tried << 32),
        top=returns.top,
        alternatives=returns.alternatives,
    )


def drawable_tokens(tables: TokenTables, tokenizer: Tokenizer) -> Mask | None:
    """The tokens that are allowed and not banned; None for all."""
    banned = tables.banned.union(token for token, amount in tables.bias if amount == -np.inf)
    if not banned and tables.allowed is None:
        return None
    allowed = range(tokenizer.vocab_size) if tables.allowed is None else tables.allowed
    return vocabulary_of(tokenizer).mask_of(
        token for token in allowed if token not in banned and 0 <= token < tokenizer.vocab_size
    )


def check_budget(filters: FilterSet, limit: int, room: int, given: int = 0, *, may_cut: bool = False) -> bool:
    """Whether the reply will be cut at `limit`, because it `may_cut` and the shortest text that the filters
    allow is longer. Raise `BadSetting` if that text is too long otherwise.

    `limit` is the most tokens of a reply (0: no limit), `room` the number that fits into the context, `given`
    how many the reply has already. May raise `Busy`.
    """
    least = filters.least() - given
    _check_length(least, 0 if may_cut else limit, room)
    if may_cut and 0 < limit < least:  # known without a search
        return True
    needed = filters.needed()
    if may_cut and 0 < limit < needed:
        return True
    _check_length(needed, limit, room)
    return False


def _check_length(needed: int, limit: int, room: int) -> None:
    if limit and needed > limit:
        raise BadSetting(
            _(
                "A reply in this format has at least {needed:,} tokens, but a reply may have {limit:,}; "
                "allow longer replies, or choose a simpler format.",
                needed=needed,
                limit=limit,
            )
        )
    if needed > room:
        raise BadSetting(
            _(
                "A reply in this format has at least {needed:,} tokens, but the context has room for "
                "{room:,}; shorten the chat, choose a larger context length, or choose a simpler format.",
                needed=needed,
                room=room,
            )
        )


def only_stops(mask: Mask | None, stop_ids: Iterable[int]) -> bool:
    """Whether a mask allows nothing but tokens that end the sequence."""
    if mask is None:
        return False
    others = mask.copy()
    for token in stop_ids:
        if token // 32 < len(others):
            others[token // 32] &= ~np.uint32(1 << token % 32)
    return not others.any()


def _without(mask: Mask, token: int) -> Mask:
    """A copy of a mask without one token."""
    left = mask.copy()
    left[token // 32] &= ~np.uint32(1 << token % 32)
    return left
