"""Many rows times integer weights: products of 16-bit pairs (vpdpwssd), for CPUs with VNNI.

A block of weights is unpacked once into a panel of 16-bit numbers that stays in the first-level cache, and register tiles run over
all rows. A panel's cell, 32 features of 16 columns: 16 vectors of pairs, then for each part of `part` features 16 float32 scales and, where
there are minimums, 16 of these. A row's record of 32 activations, 80 bytes: 16 pairs of 16 bits, then float32: the scale, and sums as
in `activations`. Of each quad of features the pairs are (0, 2) and (1, 3), as a mask and a shift take them out of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.activations import FEATURES, whole_numbers
from engine.backends.cpu.simd import (
    F32,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    WIDE,
    Accumulators,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    ld_i64,
    load,
    splat,
    store,
)
from engine.backends.cpu.simd_bytes import KIND, join, part_of

PAIRS = KIND == "vnni"
"""Whether the CPU multiplies pairs of 16 bits and adds them to 32 in one instruction; otherwise float32 is as fast."""
RECORD = 80
RECORD_WORDS = RECORD // 4
"""Of 32 activations."""
SCALE, SUMS = 64, 68
V32I16 = ir.VectorType(I16, 2 * LANES)
CODES = LANES * 64
"""Bytes of a cell's pairs."""
ROW_STEPS = (6, 2, 1) if WIDE else (3, 1, 1)
COLUMN_VECTORS = 2 if WIDE else 1

(P_X, P_X_STRIDE, P_Y, P_Y_STRIDE, P_BLOCKS) = range(5)


def cell_bytes(part: int, minimums: bool) -> int:
    """Bytes of a panel's cell."""
    return CODES + FEATURES // part * LANES * 4 * (2 if minimums else 1)


def code_pairs(b: ir.IRBuilder, quad: ir.Value, minus: ir.Value | None) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of unsigned bytes, each less `minus` (32 numbers of 16 bits)."""
    mask = const_vector(0x00FF00FF, VI32)
    both = [b.and_(quad, mask), b.and_(b.lshr(quad, const_vector(8, VI32)), mask)]
    first, second = (b.bitcast(v, V32I16) for v in both)
    return (first, second) if minus is None else (b.sub(first, minus), b.sub(second, minus))


def signed_pairs(b: ir.IRBuilder, quad: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of signed bytes."""
    eight, both = ir.Constant(V32I16, [ir.Constant(I16, 8)] * 32), b.bitcast(quad, V32I16)
    return b.ashr(b.shl(both, eight), eight), b.ashr(both, eight)


def in_both(b: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """Whole numbers of 16 lanes, int32 in 16 bits, as both numbers of each lane's pairs."""
    low = b.and_(numbers, const_vector(0xFFFF, VI32))
    return b.bitcast(b.or_(low, b.shl(low, const_vector(16, VI32))), V32I16)


def pair_products(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
    """total[lane] + both products of the lane's pairs; int32 (16), int16 (32), int16 (32)."""
    size = LANES if WIDE else 8
    parts = []
    for start in range(0, LANES, size):
        kind = ir.VectorType(I32, size)
        w, v = (part_of(b, a, 2 * start, 2 * size) for a in (weights, x))
        function = ir.FunctionType(kind, [kind, w.type, v.type])
        call = cgutils.get_or_insert_function(b.module, function, f"llvm.x86.avx512.vpdpwssd.{32 * size}")
        parts.append(b.call(call, [part_of(b, total, start, size), w, v]))
    return join(b, parts)


def _emit_pair_row(b: ir.IRBuilder, x: Any, count: Any, records: Any) -> None:
    order = [4 * (i // 4) + (0, 2, 1, 3)[i % 4] for i in range(FEATURES)]
    with counted_loop(b, count) as i:
        record = b.add(records, b.mul(i, ir.Constant(I64, RECORD)))
        scale, halves, totals = whole_numbers(b, b.add(x, b.mul(i, ir.Constant(I64, 4 * FEATURES))))
        short = [b.trunc(half, ir.VectorType(I16, LANES)) for half in halves]
        mask = ir.Constant(ir.VectorType(I32, FEATURES), [ir.Constant(I32, k) for k in order])
        store(b, b.shuffle_vector(*short, mask), record)
        store(b, scale, record, SCALE)
        for n, total in enumerate(totals):
            store(b, b.fmul(total, scale), record, SUMS + 4 * n)


pair_row = intrinsic_function("pair_row", types.void, (types.int64,) * 3, _emit_pair_row)


def pair_rows(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile a row: float32 to records of pairs."""
    x, y = ld_i64(args + 8 * P_X) + tile * ld_i64(args + 8 * P_X_STRIDE), ld_i64(args + 8 * P_Y) + tile * ld_i64(args + 8 * P_Y_STRIDE)
    pair_row(x, ld_i64(args + 8 * P_BLOCKS), y)


def pair_tile(vectors: int, rows: int, part: int, minimums: bool) -> Any:
    """tile(panel, vector_stride, x, x_stride, cells, out, out_stride): out[t, 16 m + lane] += x (rows, 32 cells) times the panel."""
    cell, parts = cell_bytes(part, minimums), FEATURES // part

    def finish(
        b: ir.IRBuilder, sums: list[ir.Value], starts: list[ir.Value], records: Sequence[ir.Value], p: int, totals: Accumulators
    ) -> None:
        at = CODES + p * LANES * 4 * (2 if minimums else 1)
        which = SUMS + 4 * (2 if parts == 1 else p)
        for m, start in enumerate(starts):
            scale = load(b, start, VF32, at)
            minimum = load(b, start, VF32, at + 64) if minimums else None
            for t, record in enumerate(records):
                slot = t * vectors + m
                value = b.fmul(b.sitofp(sums[slot], VF32), splat(b, load(b, record, F32, SCALE)))
                total = fma(b, scale, value, totals.get(slot))
                if minimum is not None:
                    total = fma(b, minimum, splat(b, load(b, record, F32, which)), total)
                totals.set(slot, total)

    def emit(
        b: ir.IRBuilder, panel: Any, vector_stride: Any, x: Any, x_stride: Any, cells: Any, out: Any, out_stride: Any
    ) -> None:
        totals = Accumulators(b, vectors * rows)
        out_rows = [b.add(out, b.mul(out_stride, ir.Constant(I64, t))) for t in range(rows)]
        x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
        columns = [b.add(panel, b.mul(vector_stride, ir.Constant(I64, m))) for m in range(vectors)]
        for t in range(rows):
            for m in range(vectors):
                totals.set(t * vectors + m, load(b, out_rows[t], VF32, 64 * m))
        with counted_loop(b, cells) as i:
            starts = [b.add(column, b.mul(i, ir.Constant(I64, cell))) for column in columns]
            records = [b.add(row, b.mul(i, ir.Constant(I64, RECORD))) for row in x_rows]
            for p in range(parts):
                sums: list[ir.Value] = [const_vector(0, VI32) for _ in range(vectors * rows)]
                for k in range(p * part // 2, (p + 1) * part // 2):
                    weights = [load(b, start, V32I16, 64 * k) for start in starts]
                    for t, record in enumerate(records):
                        value = b.bitcast(splat(b, load(b, record, I32, 4 * k)), V32I16)
                        for m in range(vectors):
                            slot = t * vectors + m
                            sums[slot] = pair_products(b, sums[slot], weights[m], value)
                finish(b, sums, starts, records, p, totals)
        for t in range(rows):
            for m in range(vectors):
                store(b, totals.get(t * vectors + m), out_rows[t], 64 * m)

    return intrinsic_function(f"pairs_{vectors}x{rows}_{part}{'_min' if minimums else ''}", types.void, (types.int64,) * 7, emit)
