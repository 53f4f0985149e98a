"""Typed reading of headers: ranges, defaults, nulls, nested objects, and what is wrong in one sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys


def keys(prefix: str = "", **values: Any) -> Keys:
    return Keys({prefix + name: value for name, value in values.items()}, "config.json", prefix)


@pytest.mark.parametrize(
    ("method", "limits", "value", "expected"),
    [
        ("integer", (1, 5), 1, 1), ("integer", (1, 5), 5, 5), ("number", (0.5, 2), 0.5, 0.5),
        ("number", (0.5, 2), 2, 2.0), ("flag", (), False, False), ("text", (), "", ""),
        ("integers", (1, 5), [1, 5], (1, 5)), ("integers", (1, 5), [], ()), ("integers", (1, 5), None, ()),
        ("numbers", (0.5, math.inf), [0.5, 2, math.inf], (0.5, 2.0, math.inf)), ("numbers", (0, 1), None, ()),
        ("flags", (2,), [1, False, True], (True, False)), ("flags", (2,), None, ()),
        ("optional", (0, 2), 1.5, 1.5), ("optional", (0, 2), None, 0.0), ("table", (), None, None),
    ],
)  # fmt: skip
def test_values_that_fit(method: str, limits: tuple[Any, ...], value: Any, expected: Any) -> None:
    found = getattr(keys(a=value), method)("a", *limits)
    assert (found, type(found)) == (expected, type(expected))
    if isinstance(found, tuple):
        assert list(map(type, found)) == list(map(type, expected))


@pytest.mark.parametrize(
    ("method", "limits", "value", "words"),
    [
        *(("integer", (1, 5), value, f"is {value!r}, but a whole number from 1 to 5 was expected")
          for value in (0, 6, 2.0, True, "2", [2])),
        *(("number", (0.5, 2), value, f"is {value!r}, but a number from 0.5 to 2 was expected")
          for value in (0.4, 2.1, math.nan, math.inf, True, "1")),
        *(("flag", (), value, "but true or false was expected") for value in (0, 1, "true")),
        *(("text", (), value, "but a text was expected") for value in (0, ["a"], b"a")),
        *(("integers", (1, 5), value, "a list of whole numbers from 1 to 5 was expected")
          for value in ([0], [1, 6], [True], [1.0], 3, "12", (1, 2))),
        *(("numbers", (0, 1), value, "a list of numbers from 0 to 1 was expected")
          for value in ([-1], [0.5, 2], [True], ["1"], 1, [math.nan])),
        *(("flags", (2,), value, "a list of 2 flags was expected")
          for value in ([1], [1, 2], "11", [0, None])),
        ("table", (), [1], "but an object was expected"), ("optional", (0, 2), 3, "a number from 0 to 2"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(method: str, limits: tuple[Any, ...], value: Any, words: str) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        getattr(keys("llama.", a=value), method)("a", *limits)
    assert str(caught.value).startswith("config.json: llama.a is ")
    assert words in str(caught.value)


@pytest.mark.parametrize("method", ["integer", "number", "flag", "text"])
@pytest.mark.parametrize("given", [{}, {"a": None}])
def test_what_is_absent_or_null(method: str, given: dict[str, Any]) -> None:
    limits = (1, 5) if method in ("integer", "number") else ()
    usual = {"integer": 3, "number": 3.0, "flag": True, "text": "x"}[method]
    assert getattr(keys(**given), method)("a", *limits, usual) == usual
    with pytest.raises(BadCheckpoint, match=r"^config\.json has no a; .* The file is incomplete\.$"):
        getattr(keys(**given), method)("a", *limits)


@pytest.mark.parametrize(("length", "shown"), [(78, "'" + "z" * 78 + "'"), (79, "'" + "z" * 76 + "...")])
def test_long_values_are_cut_in_sentences(length: int, shown: str) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        keys(a="z" * length).flag("a")
    assert str(caught.value).startswith(f"config.json: a is {shown}, but true or false was expected")


def test_keys_are_changed_in_copies() -> None:
    own = keys("m.", a=1, b=None, c={"d": 4})
    assert (own.has("b"), own.has("x"), own.raw("b"), own.raw("a")) == (True, False, None, 1)
    filled = own.over({"a": 5, "b": 6, "x": 7})
    assert [filled.raw(name) for name in "abx"] == [1, None, 7]
    assert own.replaced("a", 9).integer("a", 0, 10) == 9
    renamed = own.renamed(y="a", z="gone")
    assert (renamed.raw("y"), renamed.has("z"), renamed.raw("a")) == (1, False, 1)
    less = own.without("a", "x")
    assert (less.has("a"), less.has("b")) == (False, True)
    assert own.source == {"m.a": 1, "m.b": None, "m.c": {"d": 4}}
    nested = own.table("c")
    assert nested is not None
    with pytest.raises(BadCheckpoint, match=r"^config\.json: m\.c: d is 4, but a text"):
        nested.text("d")


def test_the_keys_of_an_inner_part_stand_over_those_around() -> None:
    whole = keys(architectures=["Whole"], a=1, b=2, text_config={"architectures": None, "a": 3})
    inner = whole.inner("text_config")
    assert [inner.raw(name) for name in ("architectures", "a", "b")] == [["Whole"], 3, 2]
    assert keys(a=1, text_config={"architectures": ["X"]}).inner("text_config").raw("architectures") == ["X"]
    assert whole.inner("vision_config") is whole
