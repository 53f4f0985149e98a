"""Markdown without its marks, as a screen reader says it."""

from __future__ import annotations

import pytest

from desktop.blocks import THINKING_TAGS, BlockSplitter
from desktop.blocks.spoken_text import spoken_message, spoken_so_far, unmarked


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


def test_code_and_tables_of_a_message_are_said_by_their_size() -> None:
    table = "| crop | depth |\n|---|---|\n| peas | 4 cm |\n| rye | 3 cm |\n"
    code = "```python\nsow(1)\nsow(2)\n```\n"
    said = spoken_message(f"**Two** ways:\n\n{code}\n{table}\n{code}", ())
    assert said.split("\n") == [
        "Two ways:", "Code in python, 2 lines.", "A table with 3 rows.", "Code in python, 2 lines.", ""
    ]  # fmt: skip
    assert spoken_message("```\none\n```\n\n```\ntwo\n```", ()) == "Code, 1 line.\nCode, 1 line.\n"


def test_code_that_was_cut_for_its_size_is_said_once() -> None:
    long = "```\n" + "".join(f"line {number}\n" for number in range(3000)) + "```\n"
    said = spoken_message(f"{long}\n{long}", ())
    assert said == "Code, 3,000 lines.\n" * 2


def test_what_may_still_change_is_not_said() -> None:
    for begun in ("$$\nx^2\n", "```\ncode\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"):
        splitter = BlockSplitter()
        splitter.feed(f"So.\n\n{begun}")
        assert spoken_so_far(splitter, ended=False) == "So.\n"
    assert spoken_message("So.\n\n$$\nx^2\n$$\n", ()) == "So.\nFormula: x squared.\n"


def test_a_thought_that_the_prompt_had_begun_is_not_said() -> None:
    assert spoken_message("Hm, let me see.\n</think>\nYes.\n", THINKING_TAGS).strip() == "Yes."
