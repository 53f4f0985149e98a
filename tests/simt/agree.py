"""Holds a kernel's body, run by the interpreter, against its model in NumPy: both get copies of the same
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from tests.simt.interpreter import Memory, run
from tests.simt.models import run_model


class At:
    """An argument: the address of array number `array`, and `offset` bytes behind it."""

    def __init__(self, array: int, offset: int = 0) -> None:
        self.array, self.offset = array, offset


class Table:
    """In the place of an array: the addresses of other arrays, int64, by their numbers; 0 for None. It comes
    back as it is."""

    def __init__(self, *entries: int | None) -> None:
        self.entries = entries

    def addresses(self, of: Sequence[int]) -> Any:
        """With the arrays at these addresses."""
        return np.array([0 if entry is None else of[entry] for entry in self.entries], np.int64)


CONTRACTED = False
"""Whether sums of products are rounded once, and roots approximate, as a device does it: results may then be
one step off."""


def interpreted(
    kernel: Kernel,
    blocks: tuple[int, int, int],
    arguments: Sequence[Any],
    arrays: Sequence[Any],
    reverse: bool,
) -> list[Any]:
    """The arrays after the kernel's body.

    Where there is a GPU, `tests/gpu` puts it in the place of the interpreter.
    """

    def execute(memory: Memory, values: list[Any]) -> None:
        run(kernel, blocks, values, memory, reverse=reverse)

    return _after(execute, arguments, arrays)


def both(
    kernel: Kernel,
    blocks: tuple[int, int, int],
    arguments: Sequence[Any],
    arrays: Sequence[Any],
    *,
    twice: bool = True,
) -> tuple[list[Any], list[Any]]:
    """The arrays after the interpreter, and after the model. With `twice` warps and blocks run in the
    opposite order, too, and all that is written must be the same, bit for bit.
    """

    first = interpreted(kernel, blocks, arguments, arrays, False)
    if twice:
        again = interpreted(kernel, blocks, arguments, arrays, True)
        for i, (one, other) in enumerate(zip(first, again, strict=True)):
            same = one is other if isinstance(one, Table) else one.tobytes() == other.tobytes()
            assert same, f"array {i} depends on the order in which warps run"
    return first, _after(lambda memory, values: run_model(kernel, blocks, values, memory), arguments, arrays)


def _after(
    execute: Callable[[Memory, list[Any]], None], arguments: Sequence[Any], arrays: Sequence[Any]
) -> list[Any]:
    copies = [np.zeros(len(a.entries), np.int64) if isinstance(a, Table) else aligned(a) for a in arrays]
    addresses = [copy.ctypes.data for copy in copies]
    for copy, array in zip(copies, arrays, strict=True):
        if isinstance(array, Table):
            copy[:] = array.addresses(addresses)
    execute(Memory(*copies), [addresses[a.array] + a.offset if isinstance(a, At) else a for a in arguments])
    return [array if isinstance(array, Table) else copy for copy, array in zip(copies, arrays, strict=True)]


def aligned(array: Any) -> Any:
    """A copy whose address is a multiple of 256."""
    room = np.zeros(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
