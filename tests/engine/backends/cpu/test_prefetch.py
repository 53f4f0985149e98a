"""How the product of each layout reads memory: in order, as a processor's own prefetcher follows it, and with
all lines prefetched where that does not keep up: one that is left out costs memory's whole latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit, types

from engine.backends.base import AttentionShape
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen.simd import I8, I64, store
from engine.backends.cpu.kernels.linear.dots import _dot
from engine.backends.cpu.kernels.linear.linear import A_AHEAD
from engine.backends.cpu.layouts import layout
from engine.backends.cpu.layouts.layout import READ_AHEAD, WeightLayout
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS
from engine.backends.cpu.runtime import read_ahead
from engine.weights.tensor import FileTensor

ROOM = 1 << 16
"""Bytes from a weight to the mark of its line."""
BLOCKS = 7


def _mark(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
    """Instead of a prefetch: a mark that the line would have been fetched."""
    line = b.and_(b.add(address, ir.Constant(I64, offset - READ_AHEAD)), ir.Constant(I64, -64))
    store(b, ir.Constant(I8, 1), b.add(line, ir.Constant(I64, ROOM)))


def _multiply(kind: WeightLayout, rows: int, tile: int, ahead: int) -> None:
    """Multiply rows of zeros by `BLOCKS` blocks at the address `tile`; one row prefetches `ahead`."""
    dot = _dot(kind, rows)

    @njit(types.void(*(types.int64,) * 3))
    def product(tile: int, x: int, out: int) -> None:
        dot(tile, BLOCKS, x, 0, rows, out, ahead)

    x, out = np.zeros(4 * 256 * BLOCKS + 4096, np.uint8), np.zeros(16 * rows, np.float32)
    product(tile, x.ctypes.data, out.ctypes.data)


class _Reads:
    """Notes the order in which the lines of a tile are read for the first time, in code that is compiled
    while it stands for `ir.IRBuilder.load`.
    """

    def __init__(self, tile: int, size: int) -> None:
        self._load, self._inside = ir.IRBuilder.load, False
        self.turns = np.zeros(size // 64 + 2, np.int64)  # the last two: of other addresses, and the count
        self._tile, self._size = tile, size

    def patched(self, b: ir.IRBuilder, pointer: Any, *arguments: Any, **named: Any) -> Any:
        if not self._inside:
            self._inside = True
            self._note(b, b.ptrtoint(pointer, I64))
            self._inside = False
        return self._load(b, pointer, *arguments, **named)

    def _note(self, b: ir.IRBuilder, address: Any) -> None:
        def word(index: Any) -> Any:
            place = b.add(ir.Constant(I64, self.turns.ctypes.data), b.mul(index, ir.Constant(I64, 8)))
            return b.inttoptr(place, I64.as_pointer())

        offset, other = b.sub(address, ir.Constant(I64, self._tile)), ir.Constant(I64, self.turns.size - 2)
        inside = b.icmp_unsigned("<", offset, ir.Constant(I64, self._size // 64 * 64))
        line = word(b.select(inside, b.udiv(offset, ir.Constant(I64, 64)), other))
        count = word(ir.Constant(I64, self.turns.size - 1))
        turn, before = b.add(b.load(count), ir.Constant(I64, 1)), b.load(line)
        b.store(turn, count)
        b.store(b.select(b.icmp_signed("==", before, ir.Constant(I64, 0)), turn, before), line)


@pytest.mark.slow_after(16)
@pytest.mark.parametrize("kind", WEIGHT_LAYOUTS, ids=lambda kind: kind.name)
def test_the_lines_of_a_tile_are_read_in_their_order(
    kind: WeightLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    size, memory = BLOCKS * kind.block_bytes, np.zeros(2 * ROOM + 64, np.uint8)
    tile = memory.ctypes.data + -memory.ctypes.data % 64
    reads = _Reads(tile, size)
    monkeypatch.setattr(ir.IRBuilder, "load", lambda b, *given, **named: reads.patched(b, *given, **named))
    _multiply(kind, 1, tile, 0)
    turns = reads.turns[:-2]
    assert np.count_nonzero(turns) > turns.size // 2  # a vector that reaches into the next line counts once
    found = np.flatnonzero(turns)
    assert (np.diff(turns[found]) > 0).all(), f"read in this order: {found[np.argsort(turns[found])]}"


@pytest.mark.slow_after(16)
@pytest.mark.parametrize("kind", WEIGHT_LAYOUTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "ahead"), [(2, 0), (1, READ_AHEAD)])
def test_every_line_of_a_tile_is_prefetched(
    kind: WeightLayout, rows: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    size = BLOCKS * kind.block_bytes
    assert size < ROOM
    memory = np.zeros(2 * ROOM + 64, np.uint8)
    tile = -memory.ctypes.data % 64
    _multiply(kind, rows, memory.ctypes.data + tile, ahead)
    whole = size // 64 * 64  # the next tile begins in the rest
    marks = memory[tile + ROOM : tile + ROOM + whole : 64]
    assert marks.all(), f"lines {np.flatnonzero(marks == 0)} of {marks.size}"


@pytest.mark.parametrize(
    ("processor", "wide", "ahead"),
    [("znver5", True, READ_AHEAD), ("znver4", True, 0), ("znver3", False, READ_AHEAD)],
)
def test_a_single_row_prefetches_where_the_processor_does_not_keep_up_by_itself(
    processor: str, wide: bool, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: processor)
    monkeypatch.setattr(read_ahead, "WIDE", wide)
    backend = CpuBackend(1)
    weight = backend.load_weight(FileTensor("w", "F32", (16, 32), np.zeros(16 * 32 * 4, np.uint8)))
    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16")
    program = backend.record(lambda ops: ops.linear(ops.last_rows(ops.embed(weight)), weight), cache, 1)
    linear = [each for stage in program.stages for each in stage if each.kernel == "linear_f32"]
    assert [each.arguments[A_AHEAD] for each in linear] == [ahead]
    program.close()
