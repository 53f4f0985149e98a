"""Memory for the buffers of a pass: those that are never needed at the same time share a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.backends.graph.buffers import Buffer


class Touches(Protocol):
    """An operation that reads and writes buffers, and other things that order operations."""

    @property
    def reads(self) -> Sequence[object]: ...
    @property
    def writes(self) -> Sequence[object]: ...


def assign_places(operations: Sequence[Touches], result: Buffer) -> list[int]:
    """Set every buffer's `place`; returns the row bytes of each place."""
    places, sizes = plan_places(operations, result)
    for buffer, place in places.items():
        buffer.place = place
    return [size for size, _ in sizes]


def plan_places(
    operations: Sequence[Touches], result: Buffer, separate_logits: bool = False
) -> tuple[dict[Buffer, int], list[tuple[int, bool]]]:
    """The place of every buffer that is written, and each place's (row bytes, whether rows are logit rows).

    A place is free again after its buffer's last use; `result` keeps its own. With `separate_logits` no place
    serves both rows of all tokens and logit rows; otherwise the second number means nothing.
    """
    last: dict[Buffer, int] = {}
    for i, operation in enumerate(operations):
        for thing in [*operation.reads, *operation.writes]:
            if isinstance(thing, Buffer):
                last[thing] = i
    last[result] = len(operations)
    places: dict[Buffer, int] = {}
    sizes: list[tuple[int, bool]] = []
    free: list[int] = []
    for i, operation in enumerate(operations):
        for thing in operation.writes:
            if isinstance(thing, Buffer) and thing not in places:
                size = (thing.row_bytes, separate_logits and thing.on_logit_rows)
                fitting = [p for p in free if sizes[p] == size]
                places[thing] = fitting[0] if fitting else len(sizes)
                if fitting:
                    free.remove(places[thing])
                else:
                    sizes.append(size)
        free += {
            places[t] for t in [*operation.reads, *operation.writes] if isinstance(t, Buffer) and last[t] == i
        }
    return places, sizes
