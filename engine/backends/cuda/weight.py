"""A matrix on a GPU in its weight layout; and the table in which kernels find an expert's matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.layouts.layout import ROWS
from engine.backends.cuda.layouts.table import weight_layout_for
from engine.backends.cuda.runtime.device import Device
from engine.backends.packing.blocked import in_blocks
from engine.backends.packing.pieces import Bytes, packed_pieces, zero_padded
from engine.tensors import RawTensor

if TYPE_CHECKING:
    import torch

_VALUES_AT_ONCE = 1 << 21
"""Weights packed in one go, at least a tile; temporaries take some twenty bytes for each."""
_BYTES_AT_ONCE = 1 << 20
"""The same in bytes of the file, where only bits are moved."""


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
        # It imports Numba, which kernels that are kept on disk do without.
        from engine.backends.cuda.bit_moves import PAIR, bit_moves

        super().__init__(tensor, device.capability)
        tensor = in_blocks(tensor)
        k = tensor.shape[1]
        self._data = device.empty(max(self.nbytes, 16))
        self._moves = bit_moves(self.weight_layout, padded(k))
        rows, self._together = _VALUES_AT_ONCE // max(1, k), ROWS
        if self._moves is not None:
            row_bytes = padded(k) // self._moves.columns * self._moves.file_bytes
            rows, self._together = _BYTES_AT_ONCE // max(1, row_bytes), PAIR
        step = max(1, rows // self._together) * self._together
        for first, packed in packed_pieces(tensor, step, self.weight_layout.types, self._packed):
            start = first // ROWS * self.tile_bytes
            source = device.upload(packed)
            device.copy(source, self._data[start : start + packed.size])
            device.synchronize()  # before the piece's memory is given to another

    def _packed(self, first: int, rows: int, raw: Bytes) -> tuple[int, Bytes]:
        """`first`, and tiles of `rows` rows, padded with zero rows and columns to whole tiles and blocks."""
        columns = self.shape[1]
        full, width = -(-rows // self._together) * self._together, padded(columns)
        given = zero_padded(raw, rows, columns, full, width)
        if self._moves is None:
            return first, self.weight_layout.pack(given, full, width)
        return first, self._moves.pack(given, full, width)[: -(-rows // ROWS) * self.tile_bytes]

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
