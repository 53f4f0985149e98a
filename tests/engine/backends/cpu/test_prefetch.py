"""The product of each layout prefetches all lines of its blocks: one that is left out costs memory's whole
latency for each block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit, types

from engine.backends.cpu.codegen.simd import I8, I64, store
from engine.backends.cpu.kernels.linear.dots import _dot
from engine.backends.cpu.layouts import layout
from engine.backends.cpu.layouts.layout import READ_AHEAD, WeightLayout
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS

ROOM = 1 << 16
"""Bytes from a weight to the mark of its line."""
BLOCKS = 7


def _mark(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
    """Instead of a prefetch: a mark that the line would have been fetched."""
    line = b.and_(b.add(address, ir.Constant(I64, offset - READ_AHEAD)), ir.Constant(I64, -64))
    store(b, ir.Constant(I8, 1), b.add(line, ir.Constant(I64, ROOM)))


@pytest.mark.slow_after(16)
@pytest.mark.parametrize("kind", WEIGHT_LAYOUTS, ids=lambda kind: kind.name)
def test_every_line_of_a_tile_is_prefetched(kind: WeightLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    dot = _dot(kind, 1)

    @njit(types.void(*(types.int64,) * 3))
    def product(tile: int, x: int, out: int) -> None:
        dot(tile, BLOCKS, x, 0, 1, out)

    size = BLOCKS * kind.block_bytes
    assert size < ROOM
    memory = np.zeros(2 * ROOM + 64, np.uint8)
    x, out = np.zeros(4 * 256 * BLOCKS + 4096, np.uint8), np.zeros(16, np.float32)
    tile = -memory.ctypes.data % 64
    product(memory.ctypes.data + tile, x.ctypes.data, out.ctypes.data)
    whole = size // 64 * 64  # the next tile begins in the rest
    marks = memory[tile + ROOM : tile + ROOM + whole : 64]
    assert marks.all(), f"lines {np.flatnonzero(marks == 0)} of {marks.size}"
