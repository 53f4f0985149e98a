"""Stop strings: the same whatever the chunks, checked against a plain search of the whole text."""

from __future__ import annotations

import itertools
import random
import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.stops.matcher import Released, StopMatch, StopMatcher


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


@given(
    text=st.text("abc", max_size=60),
    strings=st.lists(st.text("abc", min_size=1, max_size=9), max_size=5),
    data=st.data(),
)
def test_random_splits_of_longer_texts(text: str, strings: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert stream(chunks, strings) == plain_search(text, strings)


@given(
    text=st.text("ab", max_size=30),
    strings=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
)
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


def test_what_was_held_is_given_out_once() -> None:
    for matcher in (StopMatcher(["abc"]), StopMatcher([], ["a+b"])):
        assert matcher.feed("xaa").text + matcher.finish() == "xaa"
        assert (matcher.held, matcher.finish(), matcher.matched) == ("", "", None)


def test_text_is_not_held_without_reason() -> None:
    assert StopMatcher(["###"]).feed("plain text") == Released("plain text", None)


def test_long_stream_is_linear() -> None:
    matcher, draw = StopMatcher(["aaaaaaaaab", "ba" * 8]), random.Random(0)
    text = "".join(draw.choices("ab", k=50_000)).replace("aaaaaaaaab", "").replace("ba" * 8, "")
    expected = plain_search(text, ["aaaaaaaaab", "ba" * 8])
    assert stream(list(text), ["aaaaaaaaab", "ba" * 8]) == expected
    assert matcher.matched is None


EXPRESSIONS = ["a+", "b.", "(?:ab)+", "ba(?!a)", "a.*?c", r"c\b", "[ac]{3}", "(?<=b)a", "c$"]


def mixed_search(text: str, strings: list[str], patterns: list[str]) -> tuple[int, int] | None:
    """Start and end of the earliest match of any, of those with one start the longest; expressions as they
    match the whole text.
    """
    for start in range(len(text)):
        ends = [start + len(string) for string in strings if text.startswith(string, start)]
        ends += [found.end() for pattern in patterns if (found := regex.compile(pattern).match(text, start))]
        if ends and max(ends) > start:
            return start, max(ends)
    return None


@pytest.mark.slow
@settings(max_examples=400)
@given(
    text=st.text("abc", max_size=16), strings=st.lists(st.text("abc", min_size=1, max_size=4), max_size=2),
    patterns=st.lists(st.sampled_from(EXPRESSIONS), max_size=2),
    cuts=st.lists(st.integers(0, 16), max_size=6), keep=st.booleans(),
)  # fmt: skip
def test_strings_and_expressions_together(
    text: str, strings: list[str], patterns: list[str], cuts: list[int], keep: bool
) -> None:
    span = mixed_search(text, strings, patterns)
    expected = (text, None) if span is None else (text[: span[keep]], text[slice(*span)])
    for places in (cuts, [], range(len(text))):
        chunks = [text[a:b] for a, b in itertools.pairwise([0, *sorted(places), 99])]
        matcher = StopMatcher(strings, patterns, keep=keep)
        released = "".join([*(matcher.feed(chunk).text for chunk in chunks), matcher.finish()])
        assert (released, matcher.matched.text if matcher.matched else None) == expected


@settings(max_examples=200)
@given(
    text=st.text("abc", max_size=12), strings=st.lists(st.text("abc", min_size=1, max_size=4), max_size=2),
    patterns=st.lists(st.sampled_from(EXPRESSIONS), max_size=2), aside=st.text("abc", max_size=6),
    at=st.integers(0, 12),
)  # fmt: skip
def test_restore_forgets_what_came_after_the_snapshot(
    text: str, strings: list[str], patterns: list[str], aside: str, at: int
) -> None:
    plain, rewound = StopMatcher(strings, patterns), StopMatcher(strings, patterns)
    expected = [plain.feed(text[:at]), plain.feed(text[at:]), plain.finish(), plain.matched]
    first = rewound.feed(text[:at])
    snapshot, held = rewound.snapshot(), rewound.held
    for _ in range(2):
        rewound.feed(aside)
        rewound.finish()
        rewound.restore(snapshot)
        assert rewound.held == held
    assert [first, rewound.feed(text[at:]), rewound.finish(), rewound.matched] == expected


def test_what_fired_is_named() -> None:
    matcher = StopMatcher(["stop"], [r"\d+!"], keep=True)
    assert matcher.feed("at 12") == Released("at ", None)
    assert matcher.held == "12"
    assert matcher.feed("3! and") == Released("123!", StopMatch("stop_regex", "123!", r"\d+!"))
    assert matcher.matched == StopMatch("stop_regex", "123!", r"\d+!")
    assert StopMatcher(["stop"], ["s.*p"]).feed("xstop\n") == Released(
        "x", StopMatch("stop_string", "stop", "stop")
    )


def test_a_longer_expression_wins_over_a_string_with_the_same_start() -> None:
    matcher = StopMatcher(["ab"], ["ab+c"])
    assert matcher.feed("xab") == Released("x", None)
    assert matcher.feed("bc").matched == StopMatch("stop_regex", "abbc", "ab+c")
    matcher = StopMatcher(["ab"], ["ab+c"])
    assert matcher.feed("xabd") == Released("x", StopMatch("stop_string", "ab", "ab"))
    matcher = StopMatcher(["ab"], ["ab+c"])
    assert [matcher.feed("xab").text, matcher.finish(), matcher.matched] == [
        "x",
        "",
        StopMatch("stop_string", "ab", "ab"),
    ]


def test_many_stops_cost_little() -> None:
    draw = random.Random(1)
    strings = ["".join(draw.choices("abcdefgh", k=40)) for _ in range(200)]
    matcher = StopMatcher(strings)
    begin = time.process_time()
    for _ in range(500):
        matcher.feed("".join(draw.choices("abcdefgh", k=4)))
    assert time.process_time() - begin < 1.0  # two milliseconds for each; measured: about 0.05
