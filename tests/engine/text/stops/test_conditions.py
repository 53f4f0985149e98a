"""Stop conditions as objects, and the rules they add up to."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.settings import StopSettings
from engine.text.stops.conditions import (
    Loop,
    MaxTokens,
    MinTokens,
    StopRegex,
    StopRules,
    StopStrings,
    StopTokens,
    TimeLimit,
)


def test_rules_of_the_default_settings() -> None:
    assert StopRules.from_settings(StopSettings(), (2, 7)) == StopRules(frozenset((2, 7)), max_tokens=2048)


def test_rules_of_settings_with_everything() -> None:
    settings = StopSettings(
        max_tokens=5, min_tokens=2, stop_strings=("a", "", "b"), stop_regex=r"\d+", stop_token_ids=(3, 2),
        keep_stop=True, time_limit=1.5, loop_window=12, loop_repeats=3,
    )  # fmt: skip
    assert StopRules.from_settings(settings, [2]) == StopRules(
        frozenset((2, 3)), ("a", "b"), (r"\d+",), 5, 2, 1.5, (Loop(12, 3),), True
    )


def test_rules_of_a_list_of_conditions() -> None:
    rules = StopRules.from_conditions(
        [7, "###", StopTokens(frozenset((1, 2))), StopStrings(("x", "y")), StopRegex("a+"), MaxTokens(9),
        MaxTokens(5), MinTokens(1),
         MinTokens(2), TimeLimit(3), TimeLimit(2.5), Loop(8, 2), Loop(64, 4)]
    )  # fmt: skip
    assert rules == StopRules(
        frozenset((1, 2, 7)), ("###", "x", "y"), ("a+",), 5, 2, 2.5, (Loop(8, 2), Loop(64, 4))
    )
    assert StopRules.from_conditions([]) == StopRules(frozenset())
    assert StopRules.from_conditions([0, MaxTokens(1), MinTokens(0)]) == StopRules(
        frozenset((0,)), max_tokens=1
    )
    assert StopRules.from_conditions(["x", 2]) == StopRules(frozenset((2,)), ("x",))


@pytest.mark.parametrize("condition", [True, False, "", -1, 1.5, None, b"x", ("x",), [3]])
def test_what_is_no_condition_is_named(condition: Any) -> None:
    with pytest.raises(ValueError, match="is not a stop condition") as caught:
        StopRules.from_conditions([1, condition])
    assert str(caught.value).startswith(repr(condition))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StopTokens(frozenset()), "^StopTokens is empty"),
        (
            lambda: StopTokens(frozenset((-1,))),
            "^A stop token is -1, but it must be a whole number of at least 0",
        ),
        (lambda: StopTokens(frozenset((True,))), "^A stop token is True"),
        (lambda: StopStrings(()), "^StopStrings is empty"),
        (lambda: StopStrings(("a", "")), "is ''"),
        (lambda: StopRegex(""), "is ''"),
        (lambda: StopRegex("a("), "cannot be read: missing"),
        (lambda: MaxTokens("7"), "^MaxTokens is '7', but it must be a whole number of at least 1"),
        (lambda: MaxTokens(2.5), "^MaxTokens is 2.5, but it must be a whole number of at least 1"),
        (lambda: MaxTokens(True), "^MaxTokens is True, but it must be a whole number of at least 1"),
        (lambda: MaxTokens(0), "^MaxTokens is 0, but it must be a whole number of at least 1"),
        (lambda: MinTokens(-1), "^MinTokens is -1"),
        (lambda: TimeLimit(0.0), "^TimeLimit is 0.0"),
        (lambda: TimeLimit(math.nan), "^TimeLimit is nan"),
        (lambda: Loop(8, 1), "^The repeats of a loop is 1, but it must be a whole number of at least 2"),
        (lambda: Loop(1, 2), "^The window of a loop is 1, but it must be a whole number of at least 2"),
        (lambda: Loop(3, 4), "window of 3 tokens cannot hold 4 repeats; set the window to at least 4"),
        (lambda: StopRules.from_settings(StopSettings(loop_window=2), ()), "cannot hold 4 repeats"),
        (lambda: StopRules.from_settings(StopSettings(stop_regex="[a"), ()), r"'\[a' cannot be read"),
    ],
)
def test_bad_conditions(make: Any, words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_sequences_become_what_is_declared() -> None:
    lists: Any = ["a", "b"]
    one: Any = "abc"
    ids: Any = [3, 4, 3]
    assert StopStrings(lists).strings == ("a", "b")
    assert StopStrings(one).strings == ("abc",)
    assert StopTokens(ids).ids == frozenset((3, 4))
    assert hash(StopStrings(lists)) == hash(StopStrings(("a", "b")))
