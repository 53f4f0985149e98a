"""Memory for the frames of nested calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_WORDS = (1 << 14) + 1
"""Of 8 bytes: a frame of more than 128 KB gets a piece of 256 KB."""


def in_one_piece(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function`, as a decorator: while it runs, the frames of nested calls have 128 KB in one piece.

    CPython keeps frames in pieces of 16 KB, which it takes from the system and gives back as calls cross
    their ends (`push_chunk` in its Python/pystate.c). Where deep imports end near one, each call within
    does that: 2,000 times in a start of the command line. A frame that claims half of a larger piece
    leaves the other half to the calls.
    """
    code = function.__code__
    function.__code__ = code.replace(co_stacksize=_WORDS)
    return function
