"""Counts kept up to date, against counting afresh."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.history import History

change = st.one_of(
    st.tuples(st.just("grow"), st.lists(st.integers(0, 12), max_size=6)),
    st.tuples(st.just("grow"), st.lists(st.integers(0, 700), min_size=257, max_size=300)),
    st.tuples(st.just("rewind"), st.integers(0, 8)),
    st.tuples(st.just("edit"), st.integers(0, 20)),
)


@settings(max_examples=200, deadline=None)
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
