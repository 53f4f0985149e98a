"""A small batch times one weight tile: each packed block is multiplied by all rows as it is read.

A row's sums take the same additions in the same order whatever the other rows are. Integer weights are
multiplied as bytes (`integer_dot`) or, where that is faster, as pairs of int16 (`direct`); both are exact.
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
    intrinsic_function,
    load,
    row_addresses,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import KIND
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.panel_format import PAIRS
from engine.backends.cpu.kernels.packed_activations import FEATURES, PACKED_BYTES
from engine.backends.cpu.layouts.layout import CHAINS, READ_AHEAD, Distance, WeightLayout
from engine.backends.cpu.runtime.step_block import SMALL_BATCH

PAIRS_FROM = 2 if PAIRS and KIND == "avx2" else SMALL_BATCH + 1
"""A small batch of at least this many rows multiplies integer weights as pairs of int16 (`direct`), with the
same exact sums as those of bytes: two instructions for 16 products where bytes take three, and half the
registers for sums. With VNNI both take one.
"""
WIDE_DOT = WIDE

dot1: Any = None
dot2: Any = None
dot4: Any = None
dot8: Any = None
second1: Any = None
few_rows: Any = None


def _dot(weight_layout: WeightLayout, rows: int, first: bool = True) -> Any:
    """dot(tile, blocks, x, x_stride, here, out, ahead): add to `rows` vectors of 16 float32 sums of a weight
    tile.

    x is packed for an integer layout, else float32. Rows from `here` on repeat the last one: the code for 4
    rows takes 3 no slower than those for 2 and 1 do, and that for 8 takes 7. `ahead`: how many bytes ahead
    weights are prefetched (0: not at all), into the `first` level of the cache, too, or not; for several rows
    always by `READ_AHEAD`, and into both.
    """

    def emit(b: ir.IRBuilder, *arguments: Any) -> None:
        tile, blocks, x, x_stride, here, out, ahead = arguments
        distance = Distance(ahead if rows == 1 else ir.Constant(I64, READ_AHEAD), first)
        # A sum in one chain goes on where the blocks before these ended, as if all came at once.
        chains = 1 if weight_layout.integer else CHAINS
        totals = Accumulators(b, rows * chains)
        totals.clear()
        if chains == 1:
            for r in range(rows):
                totals.set(r, load(b, out, VF32, 64 * r))
        x_rows = row_addresses(b, x, x_stride, rows, here)
        with counted_loop(b, blocks) as i:
            block = b.add(tile, b.mul(i, ir.Constant(I64, weight_layout.block_bytes)))
            unit = weight_layout.unit
            offset = b.mul(
                i, ir.Constant(I64, PACKED_BYTES * unit // FEATURES if weight_layout.integer else 4 * unit)
            )
            weight_layout.emit_dot(b, block, [b.add(row, offset) for row in x_rows], totals, distance)
        for r in range(rows):
            value = totals.get(r)
            for chain in range(1, chains):
                value = b.fadd(value, totals.get(r + rows * chain))
            if chains > 1:
                value = b.fadd(value, load(b, out, VF32, 64 * r))
            store(b, value, out, 64 * r)

    name = f"dot_{weight_layout.name}_{rows}{'' if first else '_second'}"
    return intrinsic_function(name, types.void, (types.int64,) * 7, emit)


def _emit_clear(b: ir.IRBuilder, address: Any) -> None:
    store(b, ir.Constant(VF32, [ir.Constant(F32, 0.0)] * 16), address)


clear = intrinsic_function("clear", types.void, (types.int64,), _emit_clear)


def _dots_template(tile: int, blocks: int, x: int, x_stride: int, rows: int, out: int, ahead: int) -> None:
    """out[r] += x[r] times blocks of one weight tile. Negative `ahead`: so many bytes, into the second-level
    cache alone.
    """
    r = 0
    while r < rows:
        xr, here = x + r * x_stride, rows - r
        if WIDE_DOT and here > 6:
            dot8(tile, blocks, xr, x_stride, here, out + 64 * r, ahead)
            r += 8
        elif here > 2:
            dot4(tile, blocks, xr, x_stride, here, out + 64 * r, ahead)
            r += 4
        elif here > 1:
            dot2(tile, blocks, xr, x_stride, here, out + 64 * r, ahead)
            r += 2
        elif ahead < 0:
            second1(tile, blocks, xr, x_stride, here, out + 64 * r, -ahead)
            r += 1
        else:
            dot1(tile, blocks, xr, x_stride, here, out + 64 * r, ahead)
            r += 1


def _pair_dots_template(
    tile: int, blocks: int, x: int, x_stride: int, rows: int, out: int, ahead: int
) -> None:
    """The same for a layout of integers, from `PAIRS_FROM` rows on with activations packed as pairs."""
    if rows < PAIRS_FROM:
        dot1(tile, blocks, x, x_stride, rows, out, ahead)
        return
    few_rows(tile, blocks, x, x_stride, rows, out, 64)


def dots_kernel(weight_layout: WeightLayout, few_rows: Any) -> Any:
    """dots(tile, blocks, x, x_stride, rows, out, ahead) for a layout as a Python function; `few_rows` is its
    product of pairs, None if it has none.
    """
    name = f"dots_{weight_layout.name}"
    if few_rows is not None and PAIRS_FROM <= SMALL_BATCH:
        return specialise(_pair_dots_template, name, dot1=_dot(weight_layout, 1), few_rows=few_rows)
    counts = {f"dot{rows}": _dot(weight_layout, rows) for rows in (1, 2, 4)}
    counts["second1"] = _dot(weight_layout, 1, False) if WIDE else counts["dot1"]
    return specialise(_dots_template, name, dot8=_dot(weight_layout, 8 if WIDE else 4), **counts)
