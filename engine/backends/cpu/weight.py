"""A matrix in the CPU backend's packed layout."""

from __future__ import annotations

from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.layouts.interleave import PANEL, interleaved_tiles, places
from engine.backends.cpu.layouts.layout import WeightLayout
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.cpu.runtime.weight_memory import WeightMemory
from engine.backends.packing.pieces import Bytes, packed_pieces, zero_padded
from engine.tensors import RawTensor

_VALUES_AT_ONCE = 1 << 19
"""Weights packed at once, but at least a tile; temporaries take about ten bytes for each weight."""


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
        self.interleaved = interleaved_tiles(k)
        self.tile_bytes = self.blocks * self.weight_layout.block_bytes
        self.nbytes = self.tiles * self.tile_bytes

    @property
    def address(self) -> int:
        """0, because there are no tiles."""
        return 0


class CpuWeight(WeightSpec):
    """(N, K) in tiles of 16 rows, which lie where `memory` places them.

    Types without a layout of their own become F16 or F32 (`weight_layout_for`). Raises `NotEnoughMemory`, and
    `BadCheckpoint` for a number that is too large for F16.
    """

    def __init__(self, tensor: RawTensor, memory: WeightMemory | None = None) -> None:
        super().__init__(tensor)
        k = tensor.shape[1]
        self._place = (memory or WeightMemory()).place(self.nbytes)
        step = max(1, _VALUES_AT_ONCE // max(1, k) // LANES) * LANES
        for _ in packed_pieces(tensor, step, self.weight_layout.types, self._pack):
            pass

    def _pack(self, first: int, count: int, name: str, raw: Bytes) -> None:
        """Pack `count` rows of type `name` into the tiles from row `first` (a multiple of 16) on."""
        full, width = -(-count // LANES) * LANES, self.blocks * self.weight_layout.unit
        padded = zero_padded(raw, count, self.shape[1], full, width)
        packed = self.weight_layout.pack(name, padded, full, width).reshape(-1, self.tile_bytes)
        panel_bytes = PANEL // self.weight_layout.unit * self.weight_layout.block_bytes
        for place in places(packed, first // LANES, self.tiles, self.interleaved, panel_bytes):
            self._place.write(*place)

    @property
    def address(self) -> int:
        """Address of the first tile."""
        return self._place.address
