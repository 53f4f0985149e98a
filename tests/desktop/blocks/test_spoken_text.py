"""Markdown without its marks, as a screen reader says it."""

from __future__ import annotations

import pytest

from desktop.blocks.spoken_text import unmarked


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("# Sowing peas\n", "Sowing peas"),
        ("Sow at **5 °C**.\nCover the `bed`.", "Sow at 5 °C. Cover the bed."),
        ("| crop | depth |\n|---|---:|\n| peas | 4 cm |\n", "crop depth peas 4 cm"),
        ("See [the calendar](https://example.org/a).", "See the calendar."),
        ("- one\n* two\n> three", "one two three"),
        ("***both*** and _one_", "both and one"),
        ("a_b, 2*3 and x_1", "a_b, 2*3 and x_1"),
    ],
)
def test_marks_are_not_said(source: str, said: str) -> None:
    assert unmarked(source) == said
