"""Which token stands at a place: what can be drawn at all, and drawing again where the reply could not end
in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.constraint.filter_set import Busy, FilterSet
from engine.constraint.vocabulary import Mask, vocabulary_of
from engine.errors import BadSetting, NothingAllowed
from engine.generator.choice import Where, check_budget, choose_token, drawable_tokens
from engine.generator.params import ReturnOptions
from engine.sampling.sampler import Sampled, Sampler
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings
from engine.tensors import Floats
from tests.engine.constraint.fakes import allowed_ids
from tests.engine.generator.fakes import tokenizer

SIZE = tokenizer().vocab_size
LIKELY = [63, 32, 95, 5, 100]
"""The likeliest tokens of `LOGITS`, in this order; all others are as unlikely as each other."""
LOGITS: Floats = np.zeros(SIZE, np.float32)
LOGITS[LIKELY] = [9.0, 8.0, 7.0, 6.0, 5.0]


def mask_of(ids: Sequence[int]) -> Mask:
    return vocabulary_of(tokenizer()).mask_of(ids)


@pytest.mark.parametrize(
    ("tables", "ids"),
    [
        (TokenTables(bias=((5, 3.0),)), None),
        (TokenTables(bias=((5, 3.0), (6, -np.inf))), sorted({*range(SIZE)} - {6})),
        (TokenTables(banned=frozenset({0, SIZE - 1, SIZE})), [*range(1, SIZE - 1)]),
        (TokenTables(allowed=frozenset({-1, 0, 31, 32, SIZE - 1, SIZE, 10 * SIZE})), [0, 31, 32, SIZE - 1]),
        (TokenTables(allowed=frozenset({3, 4, 5}), banned=frozenset({4}), bias=((5, -np.inf),)), [3]),
    ],
)
def test_what_can_be_drawn_at_all(tables: TokenTables, ids: list[int] | None) -> None:
    mask = drawable_tokens(tables, tokenizer())
    assert ids == (None if mask is None else allowed_ids(mask).tolist())


class Late:
    """Filters after which only some tokens leave time for an end; the known way there begins with token 7."""

    def __init__(self, fitting: Sequence[int], allowed: Sequence[int]) -> None:
        self.fitting, self.whole, self.tried = fitting, mask_of(allowed), list[int]()

    def fits(self, token: int) -> bool:
        self.tried.append(token)
        return token in self.fitting

    def forced(self) -> Mask:
        return mask_of([7])

    def whole_mask(self) -> Mask:
        return self.whole


def chosen(filters: Late | None, mask: Mask | None, **more: Any) -> Sampled:
    sampler = Sampler(SamplerSettings(temperature=0.0), 1)
    where = Where(LOGITS, [1, 2], more.get("only"), more.get("blocked", frozenset()), 0)
    return choose_token(sampler, where, ReturnOptions(), mask, cast(FilterSet | None, filters))


@pytest.mark.parametrize(
    ("fitting", "token", "tried"),
    [
        ([63], 63, [63]),
        ([32], 32, [63, 32]),
        ([95], 95, [63, 32, 95]),
        ([5], 7, [63, 32, 95]),
        ([], 7, [63, 32, 95]),
    ],
)
def test_another_token_is_drawn_where_the_reply_could_not_end_then_the_way_is_forced(
    fitting: list[int], token: int, tried: list[int]
) -> None:
    filters, mask = Late(fitting, range(SIZE)), mask_of(range(SIZE))
    assert (chosen(filters, mask).id, filters.tried) == (token, tried)
    assert allowed_ids(mask).tolist() == [*range(SIZE)], "the filters' own mask is not changed"


def learning() -> Sampler:
    """A sampler that keeps the likeliest token alone, and learns from each that is chosen."""
    return Sampler(SamplerSettings(mirostat=True, mirostat_tau=0.2, mirostat_eta=0.5), 1)


@pytest.mark.parametrize(("fitting", "token"), [([63], 63), ([32], 32), ([95], 95), ([], 7)])
def test_the_sampler_learns_from_the_token_that_stays_alone(fitting: list[int], token: int) -> None:
    """Not from those that were drawn before it at the same place."""
    sampler, alone, mask = learning(), learning(), mask_of(range(SIZE))
    filters = cast(FilterSet, Late(fitting, range(SIZE)))
    where = Where(LOGITS, [1, 2], None, frozenset(), 0)
    assert choose_token(sampler, where, ReturnOptions(), mask, filters).id == token
    choose_token(alone, where, ReturnOptions(), mask_of([token]), None)
    assert sampler.snapshot() == alone.snapshot() != learning().snapshot()


def test_the_sampler_learns_nothing_while_the_filters_need_longer() -> None:
    """The same call then chooses what it would have."""

    class Slow(Late):
        def fits(self, token: int) -> bool:
            raise Busy(Future())

    sampler, where = learning(), Where(LOGITS, [1, 2], None, frozenset(), 0)
    slow = cast(FilterSet, Slow([], range(SIZE)))
    with pytest.raises(Busy):
        choose_token(sampler, where, ReturnOptions(), mask_of(range(SIZE)), slow)
    assert sampler.snapshot() == learning().snapshot()


def test_a_mask_counts_beside_other_rules() -> None:
    assert chosen(None, mask_of([32, 5])).id == 32
    assert chosen(None, mask_of([32, 5]), blocked={32}).id == 5
    assert chosen(None, mask_of([32, 5]), only=np.array([5, 9])).id == 5


def test_the_end_is_missed_rather_than_a_ban_broken() -> None:
    """The mask that leaves time for the end has banned tokens alone: the whole one counts then, where that
    has others.
    """
    filters = Late([63], [63, 32])
    assert chosen(filters, mask_of([63]), blocked={63}).id == 32
    with pytest.raises(NothingAllowed):
        chosen(filters, filters.whole, blocked={63, 32})
    with pytest.raises(NothingAllowed):
        chosen(filters, mask_of([63]), blocked={63, 32})


@pytest.mark.parametrize(
    ("least", "needed", "given", "limit", "room", "told"),
    [
        (10, 4, 6, 4, 4, ""), (10, 0, 0, 10, 10, ""), (10, 0, 0, 0, 10, ""),
        (10, 0, 0, 9, 50, "at least 10 tokens, but a reply may have 9"),
        (10, 0, 6, 3, 50, "at least 4 tokens, but a reply may have 3"),
        (10, 5, 6, 4, 50, "at least 5 tokens, but a reply may have 4"),
        (10, 0, 6, 0, 3, "at least 4 tokens, but the context has room for 3"),
    ],
)  # fmt: skip
def test_a_format_that_is_too_long_is_refused_less_what_the_reply_has_already(
    least: int, needed: int, given: int, limit: int, room: int, told: str
) -> None:
    filters = cast(FilterSet, SimpleNamespace(least=lambda: least, needed=lambda: needed))
    with pytest.raises(BadSetting, match=told) if told else nullcontext():
        assert not check_budget(filters, limit, room, given)
    with pytest.raises(BadSetting, match=told) if "context" in told else nullcontext():
        assert check_budget(filters, limit, room, given, may_cut=True) == bool(told)
