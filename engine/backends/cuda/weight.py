"""A matrix on a GPU in its weight layout; and the table in which kernels find an expert's matrix."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.blocked import in_blocks
from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.layouts.layout import ROWS, Bytes
from engine.backends.cuda.layouts.table import weight_layout_for
from engine.backends.cuda.runtime.device import Device
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor

if TYPE_CHECKING:
    import torch

_VALUES_AT_ONCE = 1 << 21
"""Weights packed in one go, at least a tile; temporaries take some twenty bytes for each."""
_PACKERS = min(4, os.cpu_count() or 1)
"""Threads that pack; the calling thread reads, and sends to the device."""


class WeightSpec:
    """The shape and size of a `CudaWeight`, from its tensor's header: passes can be lowered with it, not run.

    `nbytes` counts bytes on the device.
    """

    device_number = 0
    """The number of its device in the backend."""

    def __init__(self, tensor: RawTensor, capability: int = 80) -> None:
        self.shape = tensor.shape
        self.weight_layout = weight_layout_for(in_blocks(tensor).type, capability)
        n, k = tensor.shape
        self.tiles = -(-n // ROWS)
        self.tile_bytes = self.weight_layout.tile_bytes(k)
        self.nbytes = self.tiles * self.tile_bytes

    @property
    def address(self) -> int:
        """0: there are no tiles."""
        return 0


class CudaWeight(WeightSpec):
    """(N, K) on a device, in tiles of 16 rows. It is sent in pieces, so the host never holds all of it.

    Types without a layout of their own become F16 or F32 (`weight_layout_for`). Raises `NotEnoughMemory`, and
    `BadCheckpoint` for a number that is too large for F16.
    """

    def __init__(self, device: Device, tensor: RawTensor) -> None:
        super().__init__(tensor, device.capability)
        tensor = in_blocks(tensor)
        n, k = tensor.shape
        self._data = device.empty(max(self.nbytes, 16))
        step = max(1, _VALUES_AT_ONCE // max(1, k) // ROWS) * ROWS
        with ThreadPoolExecutor(_PACKERS) as pool:
            running: deque[tuple[int, Future[Bytes]]] = deque()
            for first in range(0, n, step):
                last = min(first + step, n)
                name, raw = self._file_bytes(tensor.rows(first, last) if n > step else tensor)
                running.append((first, pool.submit(self._packed, name, raw, last - first)))
                if len(running) > _PACKERS:
                    self._send(device, *running.popleft())
            for each in running:
                self._send(device, *each)

    def _send(self, device: Device, first: int, packing: Future[Bytes]) -> None:
        packed = packing.result()
        start = first // ROWS * self.tile_bytes
        source = device.upload(packed)
        device.copy(source, self._data[start : start + packed.size])
        device.synchronize()  # before the piece's memory is given to another

    def _packed(self, name: str, raw: Bytes, rows: int) -> Bytes:
        """Tiles of `rows` rows, padded with zero rows to a whole tile and zero columns to a whole block."""
        columns = self.shape[1]
        full, width = -(-rows // ROWS) * ROWS, padded(columns)
        if full != rows or width != columns:
            per_row = raw.size // rows
            out = np.zeros((full, per_row * width // columns), np.uint8)
            out[:rows, :per_row] = raw.reshape(rows, per_row)
            raw = out.reshape(-1)
        return self.weight_layout.pack(name, np.ascontiguousarray(raw), full, width)

    def _file_bytes(self, rows: RawTensor) -> tuple[str, Bytes]:
        """A type that the weight layout packs, and the rows' bytes in that type."""
        if rows.type in self.weight_layout.types:
            return rows.type, rows.data
        values = rows.dequantise()
        if "F16" not in self.weight_layout.types:
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

    @property
    def data(self) -> torch.Tensor:
        """The tiles on the device, uint8."""
        return self._data

    @property
    def address(self) -> int:
        """The address of the first tile on the device."""
        return int(self._data.data_ptr())


class ExpertTable:
    """The addresses of a stack of experts' matrices of one weight layout, int64 on the device; 0 for others.

    `weights` are all of the stack, of equal shape; `first` is one of the weight layout.
    """

    def __init__(self, device: Device | None, weights: Sequence[WeightSpec], first: WeightSpec) -> None:
        """`device` is None where `weights` are specs."""
        assert all(w.shape == first.shape for w in weights)
        self.first, self.weights = first, weights
        self._data: torch.Tensor | None = None
        if device is not None:
            self._data = device.upload(
                np.array(
                    [w.address if w.weight_layout is first.weight_layout else 0 for w in weights], np.int64
                )
            )

    @property
    def address(self) -> int:
        """The table's address on the device; 0 for specs."""
        return 0 if self._data is None else int(self._data.data_ptr())


def expert_tables(device: Device | None, weights: Sequence[WeightSpec]) -> list[ExpertTable]:
    """A table for each weight layout of the experts' matrices."""
    firsts = {w.weight_layout.name: w for w in reversed(weights)}
    return [ExpertTable(device, weights, first) for first in firsts.values()]
