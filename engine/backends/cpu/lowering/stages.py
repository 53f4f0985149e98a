"""Dividing the operations of a pass into stages that run concurrently."""

from __future__ import annotations

from engine.backends.cpu.lowering.call import Operation
from engine.backends.graph.buffers import Buffer


def stages_of(operations: list[Operation]) -> list[int]:
    """Index of the first operation of each stage, and the number of operations at the end.

    An operation begins a new stage if it reads or writes what an operation of the current stage writes, or
    writes what one of them reads.
    """

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
