"""The register tile of float32 products: up to 2 x 16 output columns times up to 12 rows, summed over k.

Used for large batches, whose weights are unpacked to a float32 panel:
out[t, 16 m + lane] += sum over k of w[k, m, lane] * x[t, k].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    WIDE,
    OutputTile,
    counted_loop,
    intrinsic_function,
    load,
    row_addresses,
    splat,
)

ROW_STEPS = (12, 4) if WIDE else (6, 2)
"""Rows of x in a tile, largest first."""
COLUMN_VECTORS = 2 if WIDE else 1
"""Vectors of 16 columns in a wide tile."""


def tile_function(name: str, vectors: int, rows: int, add: Callable[..., None]) -> Any:
    """tile(panel, vector_stride, x, x_stride, count, out, out_stride, here): strides are in bytes; the tile's
    rows from `here` on repeat the one before.

    `add(builder, tile, addresses of the rows of x, of the panel's vectors, k)` emits step k of `count`.
    """

    def emit(b: ir.IRBuilder, *arguments: Any) -> None:
        panel, vector_stride, x, x_stride, count, out, out_stride, here = arguments
        tile = OutputTile(b, vectors, row_addresses(b, out, out_stride, rows, here))
        x_rows = row_addresses(b, x, x_stride, rows, here)
        starts = row_addresses(b, panel, vector_stride, vectors)
        with counted_loop(b, count) as k:
            add(b, tile, x_rows, starts, k)
        tile.write()

    return intrinsic_function(name, types.void, (types.int64,) * 8, emit)


def panel_tile(vectors: int, rows: int) -> Any:
    """The tile of a panel of `count` vectors of 16 float32 for each of the tile's vectors."""

    def add(
        b: ir.IRBuilder, tile: OutputTile, x_rows: list[ir.Value], starts: list[ir.Value], k: ir.Value
    ) -> None:
        row = b.shl(k, ir.Constant(I64, 6))
        weights = [load_float(b, b.add(start, row)) for start in starts]
        offset = b.shl(k, ir.Constant(I64, 2))
        for t in range(rows):
            value = splat(b, load(b, b.add(x_rows[t], offset), F32))
            for m in range(vectors):
                tile.sums.add_product(tile.slot(t, m), value, weights[m])

    return tile_function(f"panel_tile_{vectors}x{rows}", vectors, rows, add)


def load_float(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """16 float32 values."""
    return load(b, address, VF32)
