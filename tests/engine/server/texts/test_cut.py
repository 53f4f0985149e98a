"""Prompts that are cut at their beginning."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import BadSetting
from engine.server.texts.cut import Cut, cut_ids


class Letters:
    """A tokenizer with an id for each letter, and perhaps a BOS, 0. Control tokens are read."""

    def __init__(self, add_bos: bool = True) -> None:
        self.add_bos = add_bos

    def encode(self, text: str, *, special: bool = False, add_bos: bool = False) -> list[int]:
        assert special
        return [0] * add_bos + [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("memory", "text", "most", "reply", "kept"),
    [
        ("", "abcdef", 0, 3, "\0abcdef"), ("", "abcdef", 0, 4, "\0bcdef"),
        ("", "abcdefghijk", 0, 9, "\0hijk"),
        ("", "abcdef", 6, 2, "\0def"), ("", "abcdef", 99, 4, "\0bcdef"), ("xy", "abcdef", 8, 3, "\0xyef"),
        ("xy", "ab", 8, 3, "\0xyab"), ("uvwxyz", "ab", 6, 3, "\0yz"), ("", "abcd", 2, 9, "\0"),
    ],
)  # fmt: skip
def test_the_text_loses_its_beginning_and_the_memory_stays(
    memory: str, text: str, most: int, reply: int, kept: str
) -> None:
    tokenizer: Any = Letters()
    found = cut_ids(tokenizer, Cut(memory, text, most), 10, reply)
    assert "".join(map(chr, found)) == kept


def test_without_a_bos() -> None:
    tokenizer: Any = Letters(add_bos=False)
    assert cut_ids(tokenizer, Cut("", "abcdef"), 8, 4) == [ord(letter) for letter in "cdef"]
    with pytest.raises(BadSetting, match="The prompt is empty"):
        cut_ids(tokenizer, Cut("", ""), 8, 4)


def test_a_prompt_that_fits_is_read_as_one_text() -> None:
    """Tokens may reach from the memory into the text; a prompt that is cut has none of them."""

    class Pairs(Letters):
        def encode(self, text: str, *, special: bool = False, add_bos: bool = False) -> list[int]:
            return super().encode(text.replace("ya", "Y"), special=special, add_bos=add_bos)

    tokenizer: Any = Pairs()
    texts = ["".join(map(chr, cut_ids(tokenizer, Cut("xy", "abc"), size, 4))) for size in (9, 8)]
    assert texts == ["\0xYbc", "\0xyc"]
