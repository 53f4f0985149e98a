"""Where a recording's activations lie: symbolic buffers, and the places in memory that they share one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(eq=False)
class Buffer:
    """A symbolic activation (rows, width) of 4-byte numbers; `stride` is bytes of one row, whole vectors of 64 bytes.

    There are `copies` rows for each row of the step, or of its logit rows.
    """

    width: int
    on_logit_rows: bool = False
    copies: int = 1
    place: int = -1

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return (self.width + 15) // 16 * 64

    @property
    def row_bytes(self) -> int:
        """Bytes that each row of the step needs."""
        return self.copies * self.stride


class Touches(Protocol):
    """A recorded operation, as far as places go."""

    @property
    def reads(self) -> Sequence[object]: ...
    @property
    def writes(self) -> Sequence[object]: ...


def assign_places(operations: Sequence[Touches], result: Buffer) -> list[int]:
    """Give every buffer a place; returns the row bytes of each place. A place is free after its buffer's last use."""
    last: dict[Buffer, int] = {}
    for i, operation in enumerate(operations):
        for thing in [*operation.reads, *operation.writes]:
            if isinstance(thing, Buffer):
                last[thing] = i
    last[result] = len(operations)
    sizes: list[int] = []
    free: list[int] = []
    for i, operation in enumerate(operations):
        for thing in operation.writes:
            if isinstance(thing, Buffer) and thing.place < 0:
                fitting = [p for p in free if sizes[p] == thing.row_bytes]
                thing.place = fitting[0] if fitting else len(sizes)
                if fitting:
                    free.remove(thing.place)
                else:
                    sizes.append(thing.row_bytes)
        free += {t.place for t in [*operation.reads, *operation.writes] if isinstance(t, Buffer) and last[t] == i}
    return sizes
