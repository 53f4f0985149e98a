"""F32, F16 and BF16 weights: blocks of 4 features x 16 rows in the file's number type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    F32,
    LANES,
    VF32,
    Accumulators,
    const_vector,
    fma,
    load,
    load_bfloat,
    load_half,
    splat,
    store,
)
from engine.backends.cpu.layouts.layout import CHAINS, Bytes, Distance, ReadAhead, tiles


class Plain:
    """A weight layout of plain numbers: a block is (4, 16) values of `size` bytes."""

    integer = False
    unit = 4

    def __init__(self, type_name: str, size: int) -> None:
        self.name = type_name.lower()
        self.types: tuple[str, ...] = (type_name,)
        self.size = size
        self.file_bytes = self.unit * size
        self.block_bytes = LANES * self.file_bytes

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        values = raw.view(np.dtype(f"u{self.size}")).reshape(rows, columns)
        return np.ascontiguousarray(tiles(values, rows)).reshape(-1).view(np.uint8)

    def _vector(self, b: ir.IRBuilder, block: ir.Value, k: int) -> ir.Value:
        offset = k * LANES * self.size
        if self.name == "f32":
            return load(b, block, VF32, offset)
        return load_half(b, block, offset) if self.name == "f16" else load_bfloat(b, block, offset)

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        """`totals` has `CHAINS` slots for each row."""
        soon = ReadAhead(b, block, self.block_bytes, len(rows), ahead, self.unit)
        for k in soon.beside(range(self.unit)):
            weight = self._vector(b, block, k)
            for r, x in enumerate(rows):
                slot = r + len(rows) * (k % CHAINS)
                totals.set(slot, fma(b, splat(b, load(b, x, F32, 4 * k)), weight, totals.get(slot)))

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        for k in range(self.unit):
            store(b, b.fadd(self._vector(b, block, k), const_vector(0.0)), target, k * LANES * 4)


PLAIN = (Plain("F32", 4), Plain("F16", 2), Plain("BF16", 2))
