"""Markdown as plain words: pairs of marks go, everything that may mean itself stays."""

from __future__ import annotations

import pytest

from desktop.blocks.plain_words import plain_words


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("## **Bold** and *slanted*, ***both***, ~~gone~~", "Bold and slanted, both, gone"),
        ("**see `**kwargs` in [the *docs*](https://a.org/x_(y))**", "see **kwargs in the docs"),
        ("> quoted\n# head", "quoted\nhead"),
        ("```python\nx = a[0] * b * c\n```", "\nx = a[0] * b * c\n"),
        ("| a | **b** |\n|---|:--:|\n| 1 |  |\n  | x \\| y | 2 | \nz", "a · b\n\n1\nx \\| y · 2\nz"),
        ("|x| + |y|\n| x |\na | b\n| a | b", None),
        ("**「重要」**です", "「重要」です"),
        ("![a cat](cat.png) sleeps", "a cat sleeps"),
        ("2 * 3 * 4, 2**3 and 4**5, 2*3*4", None),
        ("*args, **kwargs and __init__, snake_case_", None),
        ("#hashtag, a > b, array[3](x y), \\*stars\\*", None),
        ("an ` alone and ~/home ~/work", None),
    ],
)
def test_only_marks_are_taken_away(source: str, words: str | None) -> None:
    assert plain_words(source) == (source if words is None else words)


def test_long_rows_are_read_once() -> None:
    for row in ("|" + " " * 200_000, "| a" + " " * 200_000, "| a | b" + " " * 200_000):
        assert plain_words(row) == row
    assert plain_words("| " * 100_000) == ""
