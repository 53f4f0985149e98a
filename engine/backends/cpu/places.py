"""What a recording is made of, where its buffers lie, and which operations may run side by side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Buffer:
    """A symbolic activation (rows, width) of 4-byte numbers; `stride` is bytes of one row, whole vectors, the rest kept zero.

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


@dataclass
class Operation:
    """One recorded kernel call. `arguments` holds ints and buffers; floats are stored by their bits.

    What it reads from memory beside activations, for the profile: `bytes` of weights of the `shape` (M, K), but at most
    `row_bytes` for each row where that is not 0, and `position_bytes` for each position up to `window` back.
    """

    kernel: str
    arguments: list[int | float | Buffer]
    reads: list[object]
    writes: list[object]
    tiles: tuple[int, int, int, int]
    on_logit_rows: bool = False
    bytes: int = 0
    row_bytes: int = 0
    position_bytes: int = 0
    window: int = 0
    shape: tuple[int, ...] = ()


def assign_places(operations: list[Operation], result: Buffer) -> list[int]:
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


def phases_of(operations: list[Operation]) -> list[int]:
    """Index of the first operation of each phase, and the number of operations at the end."""

    def names(things: list[object]) -> set[object]:
        return {("place", t.place) if isinstance(t, Buffer) else t for t in things}

    starts: list[int] = [0]
    read: set[object] = set()
    written: set[object] = set()
    for i, operation in enumerate(operations):
        reads, writes = names(operation.reads), names(operation.writes)
        if (reads | writes) & written or writes & read:
            starts.append(i)
            read, written = set(), set()
        read |= reads
        written |= writes
    return [*starts, len(operations)]
