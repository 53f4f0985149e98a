"""Counts kept up to date, against counting afresh."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.history import History
from engine.settings import SamplerSettings
from tests.engine.sampling import exact

change = st.one_of(
    st.tuples(st.just("grow"), st.lists(st.integers(0, 12), max_size=6)),
    st.tuples(st.just("grow"), st.lists(st.integers(0, 700), min_size=257, max_size=300)),
    st.tuples(st.just("rewind"), st.integers(0, 8)),
    st.tuples(st.just("edit"), st.integers(0, 20)),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(-1, 20), st.lists(change, max_size=12), st.booleans())
def test_counts_equal_counting_afresh(reach: int, changes: list[tuple[str, object]], as_tuple: bool) -> None:
    history, text = History(reach, 701), list[int]()
    for kind, value in changes:
        if isinstance(value, list):
            text = text + value
        elif isinstance(value, int) and kind == "rewind":
            text = text[: max(0, len(text) - value)]
        elif isinstance(value, int) and text:
            text[value % len(text)] = 700
        history.update(tuple(text) if as_tuple else text)
        window = text if reach < 0 else text[len(text) - min(reach, len(text)) :]
        assert dict(zip(history.ids.tolist(), history.counts.tolist(), strict=True)) == Counter(window)


def test_many_unique_ids_arriving_one_by_one() -> None:
    history, text = History(-1, 2000), list[int]()
    for token in range(2000):
        text.append(token)
        history.update(text)
    assert sorted(history.ids.tolist()) == text
    assert set(history.counts.tolist()) == {1}


@pytest.mark.parametrize("reach", [0, 1, 5, 20])
def test_a_window_that_moves_on_token_by_token(reach: int) -> None:
    draw, history, text = random.Random(reach), History(reach, 12), list[int]()
    for step in range(200):
        if step % 7 == 6:  # edited, near its end
            text[-draw.randrange(1, 7)] = draw.randrange(12)
        text.append(draw.randrange(12))
        history.update(text)
        window = text[max(0, len(text) - reach) :]
        assert dict(zip(history.ids.tolist(), history.counts.tolist(), strict=True)) == Counter(window)


@settings(max_examples=100)
@given(st.integers(-1, 6), st.integers(0, 7), st.lists(st.integers(0, 5), max_size=30), st.integers(0, 9))
def test_strengths_fade_evenly(reach: int, fade: int, text: list[int], more: int) -> None:
    sampler = SamplerSettings(repetition_range=reach, repetition_decay=fade)
    history = History(reach, 6, fade)
    for end in (max(0, len(text) - more), len(text)):
        history.update(text[:end])
        latest, amounts = history.strengths()
        expected = exact.strengths(exact.Case(sampler, text[:end]))
        assert dict(zip(history.ids.tolist(), amounts.tolist(), strict=True)) == pytest.approx(
            {t: sum(s) for t, s in expected.items()}
        )
        if latest is not None:
            assert dict(zip(history.ids.tolist(), latest.tolist(), strict=True)) == pytest.approx(
                {t: s[0] for t, s in expected.items()}
            )
        else:
            assert all(s[0] == 1 for s in expected.values())
