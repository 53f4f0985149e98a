"""A matrix in the CPU backend's packed layout."""

from __future__ import annotations

from engine.backends.cpu.bit_moves import bit_moves
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.layouts.interleave import PANEL, places, tile_places
from engine.backends.cpu.runtime.weight_memory import WeightMemory
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.packing.pieces import Bytes, packed_pieces, zero_padded
from engine.tensors import RawTensor

_VALUES_AT_ONCE = 1 << 19
"""Weights packed at once, but at least a tile; NumPy's temporaries take about ten bytes for each weight."""
_BYTES_AT_ONCE = 1 << 20
"""The same in bytes of the file, where only bits are moved. Larger arrays get new pages from the system
each time, which takes as long as reading.
"""


class CpuWeight(WeightSpec):
    """(N, K) in tiles of 16 rows, which lie where `memory` places them.

    Types without a layout of their own become F16 or F32 (`weight_layout_for`). Raises `NotEnoughMemory`, and
    `BadCheckpoint` for a number that is too large for F16.
    """

    def __init__(self, tensor: RawTensor, memory: WeightMemory | None = None) -> None:
        super().__init__(tensor)
        layout, columns = self.weight_layout, tensor.shape[1]
        self._place = (memory or WeightMemory()).place(self.nbytes)
        self._panel_bytes = PANEL // layout.unit * layout.block_bytes
        self._moves = bit_moves(layout, self.blocks)
        rows = _VALUES_AT_ONCE // max(1, columns)
        if self._moves is not None:
            rows = _BYTES_AT_ONCE // max(1, self.blocks * layout.file_bytes)
        for _ in packed_pieces(tensor, max(1, rows // LANES) * LANES, layout.types, self._pack):
            pass

    def _pack(self, first: int, count: int, raw: Bytes) -> None:
        """Pack `count` rows into the tiles from row `first` (a multiple of 16) on."""
        full, width, start = (
            -(-count // LANES) * LANES,
            self.blocks * self.weight_layout.unit,
            first // LANES,
        )
        padded = zero_padded(raw, count, self.shape[1], full, width)
        moves, memory = self._moves, self._place.memory
        if moves is not None and memory is not None:
            places_of_all = tile_places(
                start, full // LANES, self.tiles, self.interleaved, self._panel_bytes, self.tile_bytes
            )
            moves.pack(padded, full, memory, places_of_all, self._panel_bytes)
            return
        packed = (
            self.weight_layout.pack(padded, full, width)
            if moves is None
            else moves.packed(padded, full, width)
        ).reshape(-1, self.tile_bytes)
        for place in places(packed, start, self.tiles, self.interleaved, self._panel_bytes):
            self._place.write(*place)

    @property
    def address(self) -> int:
        """Address of the first tile."""
        return self._place.address
