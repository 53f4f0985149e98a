"""Several filters at once, with masks from the other thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.filter import Filter, Mask
from engine.constraint.filter_set import FilterSet
from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.constraint.vocabulary import allows, vocabulary_of
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.constraint.fakes import bytes_of, ids, text_of, tokenizer_of

TOKENIZER = tokenizer_of([*bytes_of("abcd"), b"ab", b"cd", b"bc", b"abc"])
MAKERS: list[Callable[[], Filter]] = [
    lambda: GrammarFilter.regex(TOKENIZER, "[abc]*d?"),
    lambda: GrammarFilter.regex(TOKENIZER, "(ab|c|d)*"),
    lambda: PrefixFilter(TOKENIZER, ["ab", "ca"]),
    lambda: SelectFilter(TOKENIZER, ["abcd", "abab", "cab", "ab"]),
    lambda: PrefixFilter(TOKENIZER, "a"),
    lambda: NoDoubles(TOKENIZER),
]


class NoDoubles:
    """A filter as a user would write one: no token twice in a row."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = vocabulary_of(tokenizer)
        self._tokens: list[int] = []
        self.threads: set[int] = set()

    def begin(self, prefix: bytes) -> None:
        self._tokens = []

    def mask(self) -> Mask | None:
        self.threads.add(threading.get_ident())
        return (
            self._vocabulary.mask_of(i for i in range(self._vocabulary.size) if i != self._tokens[-1])
            if self._tokens
            else None
        )

    def accept(self, token: int) -> None:
        if self._tokens[-1:] == [token]:
            raise ValueError("twice")
        self._tokens.append(token)

    def rollback(self, tokens: int) -> None:
        del self._tokens[len(self._tokens) - tokens :]

    @property
    def may_end(self) -> bool:
        return True

    @property
    def ended(self) -> bool:
        return False


def masks_of(filters: list[Filter]) -> list[int]:
    masks = [one.mask() for one in filters]
    return [i for i in range(TOKENIZER.vocab_size) if all(mask is None or allows(mask, i) for mask in masks)]


@pytest.mark.slow
@settings(max_examples=150)
@given(
    chosen=st.lists(st.integers(0, len(MAKERS) - 1), min_size=1, max_size=3),
    background=st.booleans(),
    seed=st.integers(0, 99),
)
def test_all_at_once(chosen: list[int], background: bool, seed: int) -> None:
    """The set and its filters one by one say the same after every step, forward and back, in the
    background or not.
    """
    apart = [MAKERS[i]() for i in chosen]
    with closing(FilterSet([MAKERS[i]() for i in chosen])) as together:
        compare(together, apart, background=background, draw=random.Random(seed))


def compare(together: FilterSet, apart: list[Filter], *, background: bool, draw: random.Random) -> None:
    count = 0
    together.begin()
    for _ in range(20):
        if background:
            together.prepare()
            if draw.random() < 0.5:
                together.prepare()
        early = draw.random() < 0.3 and (together.may_end, together.ended)
        mask = together.mask()
        allowed = masks_of(apart)
        assert allowed == (list(range(TOKENIZER.vocab_size)) if mask is None else ids(mask))
        assert together.may_end == all(one.may_end for one in apart)
        assert together.stuck == (not allowed and not together.may_end)
        assert together.ended == (any(one.ended for one in apart) or not allowed)
        assert not early or early[0] == together.may_end
        if background:
            together.prepare()
        if (count and draw.random() < 0.3) or not allowed or together.ended:
            back = draw.randrange(count + 1)
            together.rollback(back)
            for one in apart:
                one.rollback(back)
            count -= back
        else:
            token = draw.choice(allowed)
            together.accept(token)
            for one in apart:
                one.accept(token)
            count += 1


def test_the_mask_is_computed_on_the_other_thread() -> None:
    one = NoDoubles(TOKENIZER)
    both = FilterSet([one, GrammarFilter.regex(TOKENIZER, "[ab]*")])
    both.begin()
    assert ids(both.mask()) == [0, 2, 3, 6]
    assert one.threads == {threading.get_ident()}
    one.threads.clear()
    both.accept(6)
    both.prepare()
    assert ids(both.mask()) == [0, 2, 3]
    assert len(one.threads - {threading.get_ident()}) == len(one.threads) == 1
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("filters")] == [
        "filters_0"
    ]
    both.close()
    both.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("filters")]
    both.accept(2)
    both.prepare()  # once more, with a new thread
    assert ids(both.mask()) == [0, 3, 6]
    both.close()


def test_a_mask_under_way_is_computed_once() -> None:
    asked = list[int]()

    class Counting(NoDoubles):
        def mask(self) -> Mask | None:
            asked.append(len(self._tokens))
            return super().mask()

    both = FilterSet([Counting(TOKENIZER)])
    both.begin()
    both.accept(2)
    both.prepare()
    both.prepare()
    both.mask()
    both.close()
    assert asked == [1]


def test_a_prepared_mask_is_of_no_use_after_a_step() -> None:
    both = FilterSet([GrammarFilter.regex(TOKENIZER, "a?b?c?")])
    both.begin()
    both.prepare()
    both.accept(2)
    both.prepare()
    both.rollback(1)
    both.prepare()
    both.begin()
    assert ids(both.mask()) == [0, 2, 3, 4, 6, 8, 9]
    both.close()


def test_an_empty_set_allows_everything() -> None:
    none = FilterSet([])
    none.begin(b"x")
    none.prepare()
    none.accept(5)
    none.rollback(1)
    assert (len(none), bool(none), none.mask(), none.may_end, none.ended, none.stuck) == (
        0,
        False,
        None,
        True,
        False,
        False,
    )
    none.close()
    assert len(FilterSet([NoDoubles(TOKENIZER)])) == 1


def test_prefer_end() -> None:
    both = FilterSet([GrammarFilter.regex(TOKENIZER, "a+b*"), PrefixFilter(TOKENIZER, "aa")], prefer_end=True)
    both.begin()
    assert not both.ended
    both.accept(2)
    assert (both.may_end, both.ended) == (False, False)
    both.accept(2)
    assert (both.may_end, both.ended) == (True, True)
    both.rollback(1)
    assert not both.ended


def test_filters_that_contradict_each_other() -> None:
    both = FilterSet([GrammarFilter.regex(TOKENIZER, "a[bc]"), SelectFilter(TOKENIZER, ["ad", "b"])])
    both.begin()
    assert ids(both.mask()) == [2]
    both.accept(2)
    assert not both.ended
    assert ids(both.mask()) == []
    assert (both.ended, both.stuck, both.may_end) == (True, True, False)
    both.rollback(1)
    assert ids(both.mask()) == [2]
    assert not both.stuck


def test_a_refused_token_changes_no_filter() -> None:
    both = FilterSet([PrefixFilter(TOKENIZER, ["ab", "b"]), GrammarFilter.regex(TOKENIZER, "[ac]+|abd")])
    both.begin()
    start = ids(both.mask())
    both.accept(2)
    assert ids(both.mask()) == [3]
    with pytest.raises(ValueError, match="not allowed"):
        both.accept(8)
    assert ids(both.mask()) == [3]
    both.rollback(1)
    assert ids(both.mask()) == start


def test_no_filter_is_touched_while_the_other_thread_uses_it() -> None:
    class Slow(NoDoubles):
        busy = False

        def mask(self) -> Mask | None:
            self.busy = True
            time.sleep(0.05)
            self.busy = False
            return None

        def accept(self, token: int) -> None:
            touched.append(self.busy)

        def rollback(self, tokens: int) -> None:
            touched.append(self.busy)

        def begin(self, prefix: bytes) -> None:
            touched.append(self.busy)

        @property
        def may_end(self) -> bool:
            touched.append(self.busy)
            return True

    touched: list[bool] = []
    with closing(FilterSet([Slow(TOKENIZER)])) as slow:
        uses: list[Callable[[], object]] = [
            slow.begin,
            lambda: slow.accept(2),
            lambda: slow.rollback(1),
            lambda: slow.may_end,
            lambda: slow.ended,
            slow.mask,
        ]
        for use in uses:
            slow.prepare()
            use()
            slow.mask()
        assert touched == [False] * 4


def test_healing_reaches_all_filters() -> None:
    both = FilterSet([PrefixFilter(TOKENIZER, "ab"), GrammarFilter.regex(TOKENIZER, "[abc]{3}")])
    both.begin(b"c")
    tokens = []
    while not both.ended:
        tokens.append(ids(both.mask())[-1])
        both.accept(tokens[-1])
    assert text_of(TOKENIZER, tokens) == b"cabc"


def test_errors_reach_the_caller_once() -> None:
    class Broken(NoDoubles):
        def mask(self) -> Mask | None:
            raise BadSetting("too complex")

    broken = FilterSet([Broken(TOKENIZER)])
    broken.begin()
    broken.prepare()
    assert not broken.ended
    with pytest.raises(BadSetting, match="too complex"):
        broken.mask()
    broken.prepare()
    broken.accept(2)
    broken.begin()
    broken.close()


def test_masks_of_a_wrong_form() -> None:
    for wrong in (np.ones(4, np.uint32), np.ones(1, np.int64), np.ones((1, 1), np.uint32)):
        odd = NoDoubles(TOKENIZER)
        odd.mask = lambda wrong=wrong: wrong  # type: ignore[method-assign]
        with pytest.raises(BadSetting, match="wrong form"):
            FilterSet([GrammarFilter.regex(TOKENIZER, "a"), odd]).mask()


def test_a_mask_allows_no_token_beyond_it() -> None:
    mask = np.array([0b101, 1 << 31], np.uint32)
    assert [token for token in range(-70, 140) if allows(mask, token)] == [0, 2, 63]
