"""What a recording is made of, and which operations may run side by side."""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.graph.buffers import Buffer


@dataclass
class Operation:
    """One recorded kernel call. `arguments` holds ints and buffers; floats are stored by their bits.

    What it reads from memory beside activations, for the profile: `bytes` of weights of the `shape` (M, K),
    but at most `row_bytes` for each row where that is not 0, and `position_bytes` for each position up to
    `window` back.
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
