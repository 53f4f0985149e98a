"""Stop strings: the same whatever the chunks, checked against a plain search of the whole text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops import Released, StopMatch, StopMatcher


def plain_search(text: str, strings: list[str]) -> tuple[str, str | None]:
    """Text before the earliest match and the longest string matching there."""
    for start in range(len(text)):
        found = [string for string in strings if string and text.startswith(string, start)]
        if found:
            return text[:start], max(found, key=len)
    return text, None


def stream(chunks: list[str], strings: list[str]) -> tuple[str, str | None]:
    matcher, released = StopMatcher(strings), []
    for chunk in chunks:
        step = matcher.feed(chunk)
        released.append(step.text)
        if step.matched is not None:
            assert matcher.matched == step.matched
            return "".join(released), step.matched.text
    released.append(matcher.finish())
    return "".join(released), matcher.matched.text if matcher.matched else None


def every_split(text: str) -> list[list[str]]:
    splits = []
    for mask in range(1 << max(0, len(text) - 1)):
        chunks, start = [], 0
        for i in range(1, len(text)):
            if mask >> (i - 1) & 1:
                chunks.append(text[start:i])
                start = i
        splits.append([*chunks, text[start:]])
    return splits


@given(text=st.text("ab", max_size=8), strings=st.lists(st.text("ab", max_size=4), max_size=3))
def test_every_split_of_short_texts(text: str, strings: list[str]) -> None:
    expected = plain_search(text, strings)
    for chunks in every_split(text):
        assert stream(chunks, strings) == expected


@given(text=st.text("abc", max_size=60), strings=st.lists(st.text("abc", min_size=1, max_size=9), max_size=5), data=st.data())
def test_random_splits_of_longer_texts(text: str, strings: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert stream(chunks, strings) == plain_search(text, strings)


@given(text=st.text("ab", max_size=30), strings=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3))
def test_holds_back_only_what_could_become_a_stop_string(text: str, strings: list[str]) -> None:
    matcher, released = StopMatcher(strings), 0
    for n, char in enumerate(text, 1):
        step = matcher.feed(char)
        released += len(step.text)
        if step.matched is not None:
            return
        held = text[released:n]
        assert held == "" or any(len(held) < len(string) and string.startswith(held) for string in strings)


@pytest.mark.parametrize(
    ("chunks", "strings", "expected"),
    [
        (["Hello\nUs", "er: x"], ["\nUser:"], ("Hello", "\nUser:")),
        (["abcd", "x"], ["bcd", "abcde"], ("a", "bcd")),
        (["abcd", "e"], ["bcd", "abcde"], ("", "abcde")),
        (["a\n", "\nb"], ["\n", "\n\n"], ("a", "\n\n")),
        (["a\n"], ["\n", "\n\n"], ("a", "\n")),
        (["aab"], [], ("aab", None)),
        (["aab"], [""], ("aab", None)),
        (["😀", "🇩🇪"], ["🇪"], ("😀🇩", "🇪")),
        (["END"], ["end"], ("END", None)),
    ],
)
def test_known_cases(chunks: list[str], strings: list[str], expected: tuple[str, str | None]) -> None:
    assert stream(chunks, strings) == expected


def test_nothing_follows_a_match() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.feed("axb") == Released("a", StopMatch("stop_string", "x", "x"))
    assert matcher.feed("more") == Released("", None)
    assert matcher.finish() == ""


def test_text_is_not_held_without_reason() -> None:
    assert StopMatcher(["###"]).feed("plain text") == Released("plain text", None)


def test_long_stream_is_linear() -> None:
    matcher, draw = StopMatcher(["aaaaaaaaab", "ba" * 8]), random.Random(0)
    text = "".join(draw.choices("ab", k=50_000)).replace("aaaaaaaaab", "").replace("ba" * 8, "")
    expected = plain_search(text, ["aaaaaaaaab", "ba" * 8])
    assert stream(list(text), ["aaaaaaaaab", "ba" * 8]) == expected
    assert matcher.matched is None
