"""Generators that return a result are run to their end, and what they yield can be changed on the way."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from engine.drain import drain, mapped


class Counting:
    """Yields 0, 1, 2 and returns "done"; knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def run(self) -> Generator[int, None, str]:
        try:
            yield from range(3)
            return "done"
        finally:
            self.closed = True


def test_drain_returns_the_result_and_reports_each_step() -> None:
    seen: list[int] = []
    assert drain(Counting().run(), seen.append) == "done"
    assert seen == [0, 1, 2]
    assert drain(Counting().run()) == "done"


def test_mapped_changes_what_is_yielded_and_keeps_the_result() -> None:
    seen: list[str] = []
    assert drain(mapped(Counting().run(), str), seen.append) == "done"
    assert seen == ["0", "1", "2"]


def test_what_resume_raises_closes_the_steps() -> None:
    counting, seen = Counting(), list[int]()

    def resume() -> None:
        if len(seen) == 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        drain(mapped(counting.run(), int, resume), seen.append)
    assert (seen, counting.closed) == ([0, 1], True)


def test_closing_a_mapped_generator_closes_its_source() -> None:
    counting = Counting()
    steps = mapped(counting.run(), int)
    next(steps)
    steps.close()
    assert counting.closed
