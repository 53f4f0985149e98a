"""The arrays whose addresses a program's calls hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu.runtime.memory import aligned
from engine.tensors import Floats


class Constants:
    """Copies of a pass's vectors and tables; `kept` is what must live as long as the program."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._vectors: dict[int, tuple[Floats, int]] = {}
        self._tables: dict[int, tuple[Floats, Floats]] = {}
        self._zeros: dict[int, int] = {}

    def vector(self, values: Floats, row: int = 0) -> int:
        """Address of float32 values padded with zeros to whole vectors, a matrix's rows to `row` values."""
        if id(values) not in self._vectors:
            padded = np.pad(values, ((0, 0), (0, row - values.shape[1]))) if row else values
            # The original is kept too, so that no other array gets its id.
            self._vectors[id(values)] = values, self._copy(padded)
        return self._vectors[id(values)][1]

    def zeros(self, size: int) -> int:
        """Address of `size` float32 zeros, shared by all calls that need as many."""
        if size not in self._zeros:
            self._zeros[size] = self._copy(np.broadcast_to(np.float32(0), (size,)))
        return self._zeros[size]

    def table(self, table: Floats) -> int:
        """Address of a float32 table with a row for each position, shared by all layers that use it."""
        if id(table) not in self._tables:
            self._tables[id(table)] = table, np.ascontiguousarray(table, np.float32)
        return int(self._tables[id(table)][1].ctypes.data)

    def shared(self, rows: Floats) -> int:
        """Address of a float32 array without gaps that others read or write, too."""
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        self.kept.append(rows)
        return int(rows.ctypes.data)

    def integers(self, values: Any) -> int:
        """Address of an array of integers, which is not copied."""
        self.kept.append(values)
        return int(values.ctypes.data)

    def room(self, size: int) -> int:
        """Address of `size` zeroed bytes for calls to write."""
        self.kept.append(aligned(size))
        return int(self.kept[-1].ctypes.data)

    def _copy(self, values: Floats) -> int:
        copy = aligned((values.size + 15) // 16 * 64).view(np.float32)
        copy[: values.size] = values.reshape(-1)
        self.kept.append(copy)
        return int(copy.ctypes.data)


class CountedConstants(Constants):
    """`Constants` that copies nothing but counts the bytes in `copied_bytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.copied_bytes = 0

    def table(self, table: Floats) -> int:
        return 0

    def _copy(self, values: Floats) -> int:
        self.copied_bytes += (values.size + 15) // 16 * 64
        return 0
