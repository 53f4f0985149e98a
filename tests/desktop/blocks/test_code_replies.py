"""A reply that has to be JSON is code from its first line to its last; thoughts before it stay thoughts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.blocks import Block, BlockSplitter, Kind, last_code

JSON = '{\n  "a": "*b* _c_",\n\n  "d": "<think>",\n```\n# 1. | x | y |\n}\n'
LINES = ["{", "", "```", "# Head", "<think>", "</think>", "- item", "| a | b |", "|---|---|", "x" * 900]


def blocks(text: str, language: str = "json", opened: str = "") -> list[Block]:
    splitter = BlockSplitter(language=language, opened=opened)
    splitter.feed(text)
    return splitter.blocks(ended=True)


@pytest.mark.parametrize("before", ["", "\n\n", "<think>\n# Hm\n- a\n</think>\n\n"])
def test_all_but_thoughts_is_code(before: str) -> None:
    found = blocks(before + JSON)
    assert "".join(block.source for block in found) == before + JSON
    last = found[-1]
    assert (last.kind, last.language, last.body, last.thought) == (
        Kind.CODE,
        "json",
        JSON.rstrip("\n"),
        False,
    )
    thought = [block.kind for block in found if block.thought and block.kind is not Kind.MARKUP]
    assert thought == ([Kind.THINKING, Kind.HEADING, Kind.LIST] if "<think>" in before else [])


def test_a_thought_that_the_prompt_has_opened() -> None:
    found = blocks(f"Hm.\n</think>\n{JSON}", opened="</think>")
    assert [block.kind for block in found if block.kind is not Kind.MARKUP] == [
        Kind.THINKING, Kind.PROSE, Kind.CODE,
    ]  # fmt: skip


def test_long_code_goes_on_in_other_blocks() -> None:
    text = "[\n" + "  1,\n" * 2000 + "  1\n]\n"
    found = blocks(text)
    assert {block.kind for block in found} == {Kind.CODE}
    assert [block.joined for block in found] == [False, *[True] * (len(found) - 1)]
    assert "\n".join(block.body for block in found) == text.rstrip("\n")


@given(st.lists(st.sampled_from(LINES), max_size=12).map("\n".join), st.data())
def test_pieces_of_any_size_give_the_same_blocks(text: str, data: st.DataObject) -> None:
    splitter, place = BlockSplitter(language="json"), 0
    while place < len(text):
        step = data.draw(st.integers(1, 9))
        splitter.feed(text[place : place + step])
        place += step
        assert "".join(block.source for block in splitter.blocks()) == text[:place]
    assert splitter.blocks(ended=True) == blocks(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```py\na\n```\n\n- item\n\n  ~~~\n  b\n\n  c\n  ~~~\n\nWords", "b\n\nc"),
        ("```\nx\n```\n\n<think>\n```\ny\n```\n</think>\n", "x"),
        ("```\nunfinished", "unfinished"),
        ("A word and `code`", ""),
        ("Only ``` in words", ""),
    ],
)
def test_the_last_code_of_a_text(text: str, code: str) -> None:
    assert last_code(text, [("<think>", "</think>")]) == code


def test_the_last_code_of_a_text_is_whole_and_json_is_all_code() -> None:
    long = "\n".join(f"line {number}" for number in range(5000))
    assert last_code(f"```\na\n```\n\n```\n{long}\n```\n") == long
    assert last_code(JSON, language="json") == JSON.rstrip("\n")
