"""The beginnings of texts are those that a set of all would hold, without its size."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from engine.text.tokenizer.own_kinds.prefixes import Prefixes

few = st.text("<|ab>", min_size=1, max_size=6)


@given(st.lists(few, max_size=6), st.text("<|ab>", max_size=10), st.integers(0, 12))
def test_the_longest_beginning_at_the_end_of_a_text(texts: list[str], text: str, most: int) -> None:
    every = {each[:n] for each in texts for n in range(1, len(each) + 1)}
    lengths = [n for n in range(1, min(most, len(text)) + 1) if text[-n:] in every]
    found = Prefixes(texts)
    assert found.at_end(text, most) == max(lengths, default=0)
    assert all((part in found) == (part in every) for part in (text[-3:], text[:1]) if part)


def test_a_long_text_takes_no_square_of_its_length() -> None:
    """A control token of a damaged file had 100,000 characters: its beginnings took five gigabytes."""
    long = "<" * 100_000
    tracemalloc.start()
    try:
        assert Prefixes([long]).at_end("Hello <<", 8) == 2
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
