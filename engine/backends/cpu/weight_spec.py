"""The shape and size of a matrix in the CPU backend's packed layout."""

from __future__ import annotations

from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.layouts.interleave import interleaved_tiles
from engine.backends.cpu.layouts.layout import WeightLayout
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.tensors import RawTensor


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
