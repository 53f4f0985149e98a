"""Positions in Python's characters and in the UTF-16 units of Qt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from desktop.items.text.text_units import TokenUnits, Units
from desktop.store.conversations.token_trace import TokenTrace
from engine.core import TokenInfo

TEXTS = st.text("aé漢😀🦉", max_size=12)


def length(text: str) -> int:
    """Of the text in Qt."""
    return len(text.encode("utf-16-le")) // 2


@given(TEXTS, TEXTS)
def test_characters_and_units_are_found_from_each_other(text: str, more: str) -> None:
    units = Units(text)
    units.add(more)
    text += more
    assert (units.characters, units.units) == (len(text), length(text))
    for at, character in enumerate(text):
        first = length(text[:at])
        assert units.unit(at) == first
        assert {units.character(first + unit) for unit in range(length(character))} == {at}
    assert units.character(units.units) == len(text)


@given(st.lists(TEXTS.filter(bool), max_size=6))
def test_tokens_that_come_later_are_where_their_texts_are(texts: list[str]) -> None:
    trace = TokenTrace()
    found = TokenUnits(trace)
    for number, text in enumerate(texts):
        trace.extend([TokenInfo(number, text, 1.0, 1.0)])
        found.grow()
    ends = [length("".join(texts[: number + 1])) for number in range(len(texts))]
    assert [found.end(token) for token in range(len(texts))] == ends
    assert [*found.starts] == [0, *ends][: len(texts)]
    assert found.length == length("".join(texts))
