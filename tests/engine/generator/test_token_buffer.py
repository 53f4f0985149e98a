"""Tokens wait for their text: each is released when all of its text is out, in order, and none twice."""

from __future__ import annotations

import numpy as np

from engine.core import TokenInfo
from engine.generator.token_buffer import TokenBuffer, WrittenToken


def holding(*texts: str) -> TokenBuffer:
    buffer = TokenBuffer()
    for number, text in enumerate(texts):
        buffer.add(WrittenToken(TokenInfo(number, text, 1.0, 1.0)))
    return buffer


def seen(tokens: tuple[WrittenToken, ...]) -> list[tuple[int, str]]:
    return [(token.info.id, token.info.text) for token in tokens]


def test_a_token_waits_until_all_of_its_text_is_out() -> None:
    buffer = holding("abc")
    assert buffer.release("a") == ()
    assert buffer.release("b") == ()
    assert seen(buffer.release("c")) == [(0, "abc")]
    assert buffer.release("") == ()


def test_text_that_is_out_beyond_a_token_counts_for_the_next() -> None:
    buffer = holding("ab", "cd")
    assert seen(buffer.release("abc")) == [(0, "ab")]
    assert seen(buffer.release("d")) == [(1, "cd")]
    buffer = holding("ab", "cd")
    assert seen(buffer.release("abcd")) == [(0, "ab"), (1, "cd")]


def test_one_token_after_another_is_released_whole() -> None:
    buffer = TokenBuffer()
    for number, text in enumerate(("a", "bc", "d")):
        buffer.add(WrittenToken(TokenInfo(number, text, 1.0, 1.0)))
        assert seen(buffer.release(text)) == [(number, text)]
    assert not buffer.queue


def test_a_token_without_text_goes_with_the_next_that_has_some() -> None:
    buffer = holding("", "", "ab")
    assert buffer.release("a") == ()
    assert seen(buffer.release("b")) == [(0, ""), (1, ""), (2, "ab")]
    buffer = holding("a", "")
    assert seen(buffer.release("a")) == [(0, "a")]
    assert seen(buffer.all()) == [(1, "")]


def test_the_newest_token_stays_if_its_text_is_still_to_come() -> None:
    buffer = holding("a")
    assert buffer.release("a", keep_last=True) == ()
    buffer.add(WrittenToken(TokenInfo(1, "b", 1.0, 1.0)))
    assert seen(buffer.release("b", keep_last=True)) == [(0, "a")]
    assert seen(buffer.release("")) == [(1, "b")]


def test_text_at_the_very_end_belongs_to_the_last_token() -> None:
    buffer = holding("a", "b")
    buffer.lengthen_last("")
    buffer.lengthen_last("cd")
    assert seen(buffer.release("abcd")) == [(0, "a"), (1, "bcd")]
    buffer.lengthen_last("e")
    assert not buffer.queue


def test_the_last_tokens_of_a_cut_reply_are_shortened() -> None:
    buffer = holding("ab", "", "cde", "f")
    assert seen(buffer.cut("abcd")) == [(0, "ab"), (1, ""), (2, "cd")]
    assert not buffer.queue
    buffer.add(WrittenToken(TokenInfo(7, "xy", 1.0, 1.0)))
    assert buffer.release("x") == ()  # nothing is left over of the text before
    assert seen(buffer.release("y")) == [(7, "xy")]
    buffer = holding("ab", "cd")
    assert seen(buffer.cut("ab")) == [(0, "ab")]
    assert not buffer.queue


def test_all_gives_what_is_left_and_forgets_the_text_that_was_out() -> None:
    buffer = holding("ab", "cd")
    assert buffer.release("a") == ()
    assert seen(buffer.all()) == [(0, "ab"), (1, "cd")]
    buffer.add(WrittenToken(TokenInfo(2, "xy", 1.0, 1.0)))
    assert buffer.release("x") == ()
    assert seen(buffer.release("y")) == [(2, "xy")]


def test_a_token_that_is_shortened_keeps_its_own_logits() -> None:
    buffer = TokenBuffer()
    rows = [np.full(3, number, np.float32) for number in range(3)]
    for number, text in enumerate(("ab", "", "cde")):
        buffer.add(WrittenToken(TokenInfo(number, text, 1.0, 1.0), rows[number]))
    assert [token.logits is row for token, row in zip(buffer.cut("abc"), rows, strict=True)] == [True] * 3


def test_the_newest_tokens_are_dropped() -> None:
    buffer = holding("a", "b", "c")
    buffer.drop_last(2)
    assert seen(buffer.all()) == [(0, "a")]
