"""The register tile of all dense products: up to 4 x 16 output columns times up to 12 rows, summed over k.

Used for the prompt's matrix products (weights unpacked to a float32 panel) and for both products of attention
(keys and values read in place). out[t, 16 m + lane] += sum over k of w[k, m, lane] * x[t, k].
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    WIDE,
    Accumulators,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    load_e4m3,
    load_half,
    splat,
    store,
)

ROW_STEPS = (12, 4, 1) if WIDE else (6, 2, 1)
"""Rows of x taken at once, largest first."""
COLUMN_VECTORS = 2 if WIDE else 1
"""Vectors of 16 columns taken at once in matrix products."""


def emit_tile(
    b: ir.IRBuilder, vectors: int, rows: int, read: Any, w: Any, w_stride: Any, vector_stride: Any, x: Any,
    x_stride: Any, count: Any, out: Any, out_stride: Any,
) -> None:  # fmt: skip
    """The code of a tile; `read` loads 16 weights."""
    totals = Accumulators(b, vectors * rows)
    out_rows = [b.add(out, b.mul(out_stride, ir.Constant(I64, t))) for t in range(rows)]
    x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
    vector_starts = [b.mul(vector_stride, ir.Constant(I64, m)) for m in range(vectors)]
    for t in range(rows):
        for m in range(vectors):
            totals.set(t * vectors + m, load(b, out_rows[t], VF32, 64 * m))
    with counted_loop(b, count) as k:
        row = b.add(w, b.mul(k, w_stride))
        weights = [read(b, b.add(row, start)) for start in vector_starts]
        offset = b.shl(k, ir.Constant(I64, 2))
        for t in range(rows):
            value = splat(b, load(b, b.add(x_rows[t], offset), F32))
            for m in range(vectors):
                slot = t * vectors + m
                totals.set(slot, fma(b, value, weights[m], totals.get(slot)))
    for t in range(rows):
        for m in range(vectors):
            store(b, totals.get(t * vectors + m), out_rows[t], 64 * m)


def register_tile(vectors: int, rows: int, number: str = "fp32") -> Any:
    """tile(w, w_stride, vector_stride, x, x_stride, count, out, out_stride): strides in bytes, w fp32,
    fp16 or fp8 numbers.
    """
    read = {"fp32": load_float, "fp16": load_half, "fp8": load_e4m3}[number]

    def emit(b: ir.IRBuilder, *values: Any) -> None:
        emit_tile(b, vectors, rows, read, *values)

    return intrinsic_function(f"tile_{vectors}x{rows}_{number}", types.void, (types.int64,) * 8, emit)


def panel_tile(vectors: int, rows: int) -> Any:
    """tile(panel, vector_stride, x, x_stride, count, out, out_stride): the same for a panel of float32
    vectors side by side.
    """

    def emit(b: ir.IRBuilder, panel: Any, *others: Any) -> None:
        emit_tile(b, vectors, rows, load_float, panel, ir.Constant(I64, 64), *others)

    return intrinsic_function(f"panel_tile_{vectors}x{rows}", types.void, (types.int64,) * 7, emit)


def load_float(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """16 float32 numbers."""
    return load(b, address, VF32)
