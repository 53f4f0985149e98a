"""Which operations of a pass may run concurrently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.backends.cpu.lowering.stages import stages_of
from engine.backends.graph.buffers import Buffer


def operation(reads: str, writes: str) -> Any:
    """An operation that reads and writes what these letters name."""
    return SimpleNamespace(reads=list(reads), writes=list(writes))


@pytest.mark.parametrize(
    ("operations", "starts"),
    [
        ([], [0, 0]),
        ([("a", "x"), ("a", "y"), ("b", "z")], [0, 3]),  # what all only read keeps none apart
        ([("a", "x"), ("x", "y")], [0, 1, 2]),  # read after it is written
        ([("a", "x"), ("b", "x")], [0, 1, 2]),  # written twice
        ([("a", "x"), ("b", "a")], [0, 1, 2]),  # written after it is read
        ([("a", "x"), ("b", "y"), ("c", "a")], [0, 2, 3]),  # by any operation of the stage
        ([("a", "x"), ("x", "y"), ("b", "a"), ("c", "x")], [0, 1, 3, 4]),  # not by those of stages before
    ],
)
def test_an_operation_waits_for_what_it_shares_with_others(
    operations: list[tuple[str, str]], starts: list[int]
) -> None:
    assert stages_of([operation(*each) for each in operations]) == starts


@pytest.mark.parametrize(("place", "starts"), [(0, [0, 1, 2]), (1, [0, 2])])
def test_buffers_in_the_same_memory_are_one(place: int, starts: list[int]) -> None:
    first: Any = SimpleNamespace(reads=[], writes=[Buffer(4, place=0)])
    second: Any = SimpleNamespace(reads=[], writes=[Buffer(8, place=place)])
    assert stages_of([first, second]) == starts
