"""Long texts are encoded on a thread of their own, once each, and what waits for them goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from engine.core import Waiting
from engine.errors import ContextTooLong
from engine.text.tokenizer import aside
from engine.text.tokenizer.aside import encoded_aside, events_aside, ids_made_aside


class Lengths:
    """Encodes a text as its length, the long ones aside; `calls` are the texts and their threads."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.free = threading.Event()
        self.free.set()

    def least_tokens(self, text: str) -> int:
        return len(text) // 2

    def encode(self, text: str) -> list[int]:
        known = ids_made_aside(text) if len(text) >= aside.LONG else None
        return self.encode_here(text) if known is None else known

    def encode_here(self, text: str) -> list[int]:
        self.calls.append((text, threading.current_thread().name))
        assert self.free.wait(60)
        if text.startswith("!"):
            raise ValueError(text)
        return [len(text)]


def drained(steps: Generator[Waiting, None, Any]) -> tuple[Any, list[Waiting]]:
    waits = []
    while True:
        try:
            waits.append(next(steps))
        except StopIteration as end:
            return end.value, waits


def test_from_which_length_on() -> None:
    lengths, here = Lengths(), threading.current_thread().name
    short, long = "a" * 32_767, "a" * 32_768
    assert drained(encoded_aside(lengths, lambda: lengths.encode(short))) == ([32_767], [])
    ids, waits = drained(encoded_aside(lengths, lambda: lengths.encode(long)))
    assert ids == [32_768]
    assert not any(wait.queued for wait in waits)
    assert lengths.encode(long) == ids  # outside
    assert lengths.calls == [(short, here), (long, "aside"), (long, here)]


def test_each_text_once_and_callers_own_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG", 3)
    lengths = Lengths()

    def attempt() -> list[int]:
        first = lengths.encode("aaa")
        first.append(0)
        inner, waits = drained(encoded_aside(lengths, lambda: lengths.encode("bbbb")))  # within the other
        assert waits == []
        return [*first, *inner, *lengths.encode("aaa"), *lengths.encode("c")]

    assert drained(encoded_aside(lengths, attempt))[0] == [3, 0, 4, 3, 1]
    assert [text for text, _ in lengths.calls] == ["aaa", "bbbb", "c"]


def test_while_one_is_encoded_another_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG", 3)
    lengths = Lengths()
    lengths.free.clear()
    first = encoded_aside(lengths, lambda: lengths.encode("aaa"))
    second = encoded_aside(lengths, lambda: lengths.encode("bbbb"))
    assert [next(first).queued, next(second).queued, next(first).queued] == [False, True, False]
    assert [text for text, _ in lengths.calls] == ["aaa"]
    lengths.free.set()
    assert drained(first)[0] == [3]
    assert drained(second)[0] == [4]


def test_the_error_of_an_encoding_comes_out_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG", 3)
    lengths = Lengths()
    with pytest.raises(ValueError, match="!!!"):
        drained(encoded_aside(lengths, lambda: lengths.encode("!!!")))
    assert drained(encoded_aside(lengths, lambda: lengths.encode("aaa")))[0] == [3]


@pytest.mark.parametrize(("most", "refused"), [(0, False), (4, True), (5, False)])
def test_a_text_that_is_certainly_too_long_is_not_encoded(
    monkeypatch: pytest.MonkeyPatch, most: int, refused: bool
) -> None:
    monkeypatch.setattr(aside, "LONG", 3)
    lengths, text = Lengths(), "a" * 10
    make: Callable[[], list[int]] = lambda: lengths.encode(text)  # noqa: E731
    if refused:
        with pytest.raises(ContextTooLong, match="at least 5 tokens, but the context holds 4"):
            drained(encoded_aside(lengths, make, most))
    else:
        assert drained(encoded_aside(lengths, make, most))[0] == [10]
    assert len(lengths.calls) == (not refused)


def test_events_begin_at_once_unless_a_text_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG", 3)
    lengths, begun = Lengths(), []

    def events(text: str) -> Iterator[int]:
        ids = lengths.encode(text)
        begun.append(text)
        return iter(ids)

    short = events_aside(lengths, lambda: events("a"))
    assert begun == ["a"]
    assert list(short) == [1]
    lengths.free.clear()
    long = events_aside(lengths, lambda: events("aaa"))
    assert begun == ["a"]
    lengths.free.set()
    *waits, last = long
    assert waits
    assert all(isinstance(wait, Waiting) for wait in waits)
    assert last == 3
    with pytest.raises(ContextTooLong):
        events_aside(lengths, lambda: events("a" * 10), 4)
