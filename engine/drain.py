"""Generators that yield progress and return a result, run to their end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Y = TypeVar("Y")
Z = TypeVar("Z")
R = TypeVar("R")


def drain(steps: Generator[Y, None, R], each: Callable[[Y], object] = lambda _: None) -> R:
    """Run `steps` to its end and return its result; `each` is called with everything that it yields."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        each(step)


def mapped(
    steps: Generator[Y, None, R], change: Callable[[Y], Z], resume: Callable[[], object] = lambda: None
) -> Generator[Z, None, R]:
    """`steps` with `change` applied to everything that it yields; the result is the same.

    `resume` is called before each further step. What it raises ends this generator and closes `steps`.
    """
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            yield change(step)
            resume()
    finally:
        steps.close()
