"""A matrix in the CPU backend's packed layout."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.layouts.layout import Bytes, WeightLayout
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.cpu.runtime.memory import aligned
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor

_VALUES_AT_ONCE = 1 << 19
"""Weights packed at once, but at least a tile; temporaries take about ten bytes for each weight."""
_PACKERS = min(4, os.cpu_count() or 1)
"""Threads that pack; the calling thread reads the file."""


class WeightSpec:
    """The shape and size of a `CpuWeight`, from its tensor's header. Passes can be lowered with it, not run.

    `nbytes` includes padding, which a pass reads too.
    """

    def __init__(self, tensor: RawTensor) -> None:
        self.shape = tensor.shape
        self.weight_layout: WeightLayout = weight_layout_for(tensor.type)
        n, k = tensor.shape
        self.blocks = -(-k // self.weight_layout.unit)
        self.tiles = -(-n // LANES)
        self.tile_bytes = self.blocks * self.weight_layout.block_bytes
        self.nbytes = self.tiles * self.tile_bytes

    @property
    def address(self) -> int:
        """0, because there are no tiles."""
        return 0


class CpuWeight(WeightSpec):
    """(N, K) in tiles of 16 rows.

    Types without a layout of their own become F16 or F32 (`weight_layout_for`). Raises `NotEnoughMemory`, and
    `BadCheckpoint` for a number that is too large for F16.
    """

    def __init__(self, tensor: RawTensor) -> None:
        super().__init__(tensor)
        n, k = tensor.shape
        self._data = aligned(self.nbytes + 4096)  # kernels prefetch a little past the end
        step = max(1, _VALUES_AT_ONCE // max(1, k) // LANES) * LANES
        if n <= step:
            self._pack(0, n, *self._file_bytes(tensor))
            return
        with ThreadPoolExecutor(_PACKERS) as pool:
            running: deque[Future[None]] = deque()
            for first in range(0, n, step):
                last = min(first + step, n)
                running.append(
                    pool.submit(self._pack, first, last - first, *self._file_bytes(tensor.rows(first, last)))
                )
                if len(running) > _PACKERS:
                    running.popleft().result()
            for packing in running:
                packing.result()

    def _pack(self, first: int, count: int, name: str, raw: Bytes) -> None:
        """Pack `count` rows of type `name` into the tiles from row `first` (a multiple of 16) on."""
        full = -(-count // LANES) * LANES
        start = first // LANES * self.tile_bytes
        packed = self.weight_layout.pack(
            name, self._padded(raw, count, self.shape[1]), full, self.blocks * self.weight_layout.unit
        )
        self._data[start : start + packed.size] = packed

    def _file_bytes(self, rows: RawTensor) -> tuple[str, Bytes]:
        """A type that the weight layout packs, and the rows' bytes in that type, decoded if necessary."""
        if rows.type in self.weight_layout.types:
            return rows.type, rows.data
        values = rows.dequantise()
        if self.weight_layout.types != ("F16",):
            return "F32", values.reshape(-1).view(np.uint8)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if (too_large := np.isinf(half) & np.isfinite(values)).any():
            raise BadCheckpoint(
                f"The tensor {rows.name} ({rows.type}) holds the number {values[too_large][0]:g}; weights "
                "of this type are kept as fp16, up to 65504. Download the model again, or take it in "
                "another type."
            )
        return "F16", half.reshape(-1).view(np.uint8)

    def _padded(self, raw: Bytes, rows: int, columns: int) -> npt.NDArray[np.uint8]:
        """The rows' bytes, padded with zero rows to whole tiles and with zero columns to whole blocks."""
        full, width = -(-rows // LANES) * LANES, self.blocks * self.weight_layout.unit
        if full == rows and width == columns:
            return np.ascontiguousarray(raw)
        per_row = raw.size // rows
        # Only rows of plain numbers can end within a block; quantised rows have whole blocks.
        out = np.zeros((full, per_row * width // columns), np.uint8)
        out[:rows, :per_row] = raw.reshape(rows, per_row)
        return out.reshape(-1)

    @property
    def address(self) -> int:
        """Address of the first tile."""
        return int(self._data.ctypes.data)
