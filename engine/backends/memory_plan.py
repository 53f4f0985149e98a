"""Where a recording's activations lie: symbolic buffers, and the places in memory that they share one
after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(eq=False)
class Buffer:
    """A symbolic activation (rows, width) of 4-byte numbers; `stride` is bytes of one row, whole vectors of
    64 bytes.

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
    """Give every buffer a place; returns the row bytes of each place.

    A place is free after its buffer's last use.
    """
    places, sizes = places_of(operations, result)
    for buffer, place in places.items():
        buffer.place = place
    return [size for size, _ in sizes]


def places_of(
    operations: Sequence[Touches], result: Buffer, apart: bool = False
) -> tuple[dict[Buffer, int], list[tuple[int, bool]]]:
    """The place of every buffer that is written, and the (row bytes, whether rows are logit rows) of each
    place.

    With `apart` a place is for rows of all tokens or for logit rows, never for both; otherwise the second
    number means nothing.
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
                wanted = (thing.row_bytes, apart and thing.on_logit_rows)
                fitting = [p for p in free if sizes[p] == wanted]
                places[thing] = fitting[0] if fitting else len(sizes)
                if fitting:
                    free.remove(places[thing])
                else:
                    sizes.append(wanted)
        free += {
            places[t] for t in [*operation.reads, *operation.writes] if isinstance(t, Buffer) and last[t] == i
        }
    return places, sizes
