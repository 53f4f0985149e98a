"""y = x W^T (+ bias) (+ residual): the matrix product, for one family of packed weights each.

One to eight rows (decoding, checking drafts): every packed block is read once and multiplied with all rows, each summed in
the same order whatever rows are beside it, so that a drafted token gets to the last bit the logits it would have alone. More
rows (the prompt): the block is unpacked once into a float32 panel that stays in the L2 cache, and register tiles run over all
rows. Activations stay float32 throughout, so the answer differs from the exact one only by the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.activations import FEATURES as RECORD_FEATURES
from engine.backends.cpu.activations import RECORD, quantise_row
from engine.backends.cpu.family import CHAINS, Family, Whole
from engine.backends.cpu.gemm import COLUMN_VECTORS, ROW_STEPS, register_tile
from engine.backends.cpu.simd import (
    F32,
    I64,
    VF32,
    WIDE,
    Accumulators,
    counted_loop,
    intrinsic_function,
    ld_i64,
    load,
    st_i64,
    store,
)
from engine.backends.cpu.step import LOGIT_ROWS, ROWS, SERIAL, SMALL_ROWS
from engine.backends.cpu.whole_gemm import COLUMN_VECTORS as COLUMN_PAIRS
from engine.backends.cpu.whole_gemm import PAIRS, cell_bytes, pair_tile
from engine.backends.cpu.whole_gemm import RECORD as PAIRS_RECORD
from engine.backends.cpu.whole_gemm import ROW_STEPS as PAIR_STEPS

PANEL = 256
"""Features unpacked at once: a panel of 32 columns is 32 KB, so it and the rows of x stay in the L2 cache."""

# Words of the argument block.
(
    A_WEIGHT, A_TILE_BYTES, A_TILES, A_BLOCKS, A_X, A_X_STRIDE, A_Y, A_Y_STRIDE,
    A_BIAS, A_RESIDUAL, A_GROUP, A_LOGITS, A_COLUMNS, A_INPUT, A_PAIRS, A_PAIRS_STRIDE,
) = range(16)  # fmt: skip
ARGUMENTS = 16

SCRATCH_TAGS = 0
SCRATCH_OUT = 64
SCRATCH_PANEL = SCRATCH_OUT + 64 * SMALL_ROWS
SCRATCH_RECORDS = SCRATCH_PANEL + COLUMN_VECTORS * PANEL * 64


Jit = Callable[[Any, Any], Any]
"""Compiles a function for a signature."""


def words(count: int) -> Any:
    """The signature of a helper: `count` int64 arguments, no result."""
    return types.void(*[types.int64] * count)


def scratch_bytes(columns: int) -> int:
    """Bytes of scratch each thread needs for inputs up to `columns` wide."""
    return SCRATCH_RECORDS + SMALL_ROWS * RECORD * (columns // RECORD_FEATURES + 1)


def _dot(family: Family, rows: int) -> Any:
    """dot(tile, blocks, x, x_stride, here, out): `rows` vectors of 16 outputs, float32; x holds records for a `whole` family.

    Rows from `here` on repeat the last one: 3 rows through the code for 4 are faster than through that for 2 and for 1.
    """

    def emit(b: ir.IRBuilder, tile: Any, blocks: Any, x: Any, x_stride: Any, here: Any, out: Any) -> None:
        width = rows * CHAINS
        totals = Accumulators(b, width)
        totals.clear()
        last = b.sub(here, ir.Constant(I64, 1))
        index = [b.select(b.icmp_signed("<", here, ir.Constant(I64, r + 1)), last, ir.Constant(I64, r)) for r in range(rows)]
        x_rows = [b.add(x, b.mul(x_stride, i)) for i in index]
        with counted_loop(b, blocks) as i:
            block = b.add(tile, b.mul(i, ir.Constant(I64, family.block_bytes)))
            offset = b.mul(i, ir.Constant(I64, RECORD * family.unit // RECORD_FEATURES if family.whole else 4 * family.unit))
            family.emit_dot(b, block, [b.add(row, offset) for row in x_rows], totals)
        for r in range(rows):
            value = totals.get(r)
            for slot in range(r + rows, width, rows):
                value = b.fadd(value, totals.get(slot))
            store(b, value, out, 64 * r)

    return intrinsic_function(f"dot_{family.name}_{rows}", types.void, (types.int64,) * 6, emit)


def _unpack(family: Family) -> Any:
    """unpack(first_block, blocks, target): float32 (blocks * unit, 16)."""

    def emit(b: ir.IRBuilder, first: Any, blocks: Any, target: Any) -> None:
        with counted_loop(b, blocks) as i:
            block = b.add(first, b.mul(i, ir.Constant(I64, family.block_bytes)))
            family.emit_unpack(b, block, b.add(target, b.mul(i, ir.Constant(I64, 64 * family.unit))))

    return intrinsic_function(f"unpack_{family.name}", types.void, (types.int64,) * 3, emit)


def _pairs(family: Whole) -> Any:
    """pairs(first_block, blocks, target): cells of a panel."""
    size = cell_bytes(family.part, family.minimums) * family.unit // RECORD_FEATURES

    def emit(b: ir.IRBuilder, first: Any, blocks: Any, target: Any) -> None:
        with counted_loop(b, blocks) as i:
            block = b.add(first, b.mul(i, ir.Constant(I64, family.block_bytes)))
            family.emit_pairs(b, block, b.add(target, b.mul(i, ir.Constant(I64, size))))

    return intrinsic_function(f"pairs_{family.name}", types.void, (types.int64,) * 3, emit)


def _emit_finish(b: ir.IRBuilder, value: Any, bias: Any, residual: Any, y: Any) -> None:
    total = load(b, value, VF32)
    zero = ir.Constant(I64, 0)
    for extra in (bias, residual):
        # A missing term reads the value itself times nothing: select keeps the loop free of branches.
        there = b.icmp_signed("!=", extra, zero)
        addend = load(b, b.select(there, extra, value), VF32)
        total = b.select(there, b.fadd(total, addend), total)
    store(b, total, y)


def _emit_clear(b: ir.IRBuilder, address: Any) -> None:
    store(b, ir.Constant(VF32, [ir.Constant(F32, 0.0)] * 16), address)


finish = intrinsic_function("finish", types.void, (types.int64,) * 4, _emit_finish)
clear = intrinsic_function("clear", types.void, (types.int64,), _emit_clear)
_WIDE_TILES = tuple(register_tile(COLUMN_VECTORS, n) for n in ROW_STEPS)
_THIN_TILES = tuple(register_tile(1, n) for n in ROW_STEPS)
STEP_BIG, STEP_MIDDLE = ROW_STEPS[:2]
WIDE_DOT = WIDE

# Filled in for each family by `linear_kernel`; named here so that the templates below are complete for readers and checkers.
dot1: Any = None
dot2: Any = None
dot4: Any = None
dot8: Any = None
unpack: Any = None
few_rows: Any = None
many_rows: Any = None
finish_row: Any = None
wide_rows: Any = None
thin_rows: Any = None
tile_big: Any = None
tile_middle: Any = None
tile_one: Any = None
UNIT = BLOCK_BYTES = PANEL_BYTES = 0
WHOLE = False


def _template(args: int, step: int, tile: int, scratch: int) -> None:
    rows = ld_i64(step + 8 * (LOGIT_ROWS if ld_i64(args + 8 * A_LOGITS) else ROWS))
    first = tile * ld_i64(args + 8 * A_GROUP)
    last = min(first + ld_i64(args + 8 * A_GROUP), ld_i64(args + 8 * A_TILES))
    if rows <= SMALL_ROWS:
        few_rows(args, ld_i64(step + 8 * SERIAL), rows, first, last, scratch)
    else:
        many_rows(args, rows, first, last, scratch)


def _few_rows_template(args: int, number: int, rows: int, first: int, last: int, scratch: int) -> None:
    """Every packed block of tiles first .. last - 1 is read once and multiplied with all rows."""
    weight, tile_bytes, blocks = ld_i64(args + 8 * A_WEIGHT), ld_i64(args + 8 * A_TILE_BYTES), ld_i64(args + 8 * A_BLOCKS)
    x, x_stride = ld_i64(args + 8 * A_X), ld_i64(args + 8 * A_X_STRIDE)
    if WHOLE:
        records, width = scratch + SCRATCH_RECORDS, blocks * UNIT // RECORD_FEATURES
        if ld_i64(scratch) != number or ld_i64(scratch + 8) != ld_i64(args + 8 * A_INPUT):
            # Once for each thread and input: the tag says whose records are there.
            for r in range(rows):
                quantise_row(x + r * x_stride, width, records + r * width * RECORD)
            st_i64(scratch, number)
            st_i64(scratch + 8, ld_i64(args + 8 * A_INPUT))
        x, x_stride = records, width * RECORD
    out = scratch + SCRATCH_OUT
    for j in range(first, last):
        source = weight + j * tile_bytes
        r = 0
        while r < rows:
            xr, here = x + r * x_stride, rows - r
            if WIDE_DOT and here > 4:
                dot8(source, blocks, xr, x_stride, here, out + 64 * r)
                r += 8
            elif here > 2:
                dot4(source, blocks, xr, x_stride, here, out + 64 * r)
                r += 4
            elif here > 1:
                dot2(source, blocks, xr, x_stride, here, out + 64 * r)
                r += 2
            else:
                dot1(source, blocks, xr, x_stride, here, out + 64 * r)
                r += 1
        for r in range(rows):
            finish_row(args, j, r, out + 64 * r)


def _finish_row(args: int, j: int, r: int, value: int) -> None:
    """y[r, 16 j ..] = value + bias + residual."""
    column = r * ld_i64(args + 8 * A_Y_STRIDE) + 64 * j
    bias, residual = ld_i64(args + 8 * A_BIAS), ld_i64(args + 8 * A_RESIDUAL)
    finish(value, bias + 64 * j if bias else 0, residual + column if residual else 0, ld_i64(args + 8 * A_Y) + column)


def _many_rows_template(args: int, rows: int, first: int, last: int, scratch: int) -> None:
    """Tiles first .. last - 1 are unpacked panel by panel, and register tiles run over all rows."""
    weight, tile_bytes, blocks = ld_i64(args + 8 * A_WEIGHT), ld_i64(args + 8 * A_TILE_BYTES), ld_i64(args + 8 * A_BLOCKS)
    x, x_stride = ld_i64(args + 8 * A_X), ld_i64(args + 8 * A_X_STRIDE)
    y, y_stride = ld_i64(args + 8 * A_Y), ld_i64(args + 8 * A_Y_STRIDE)
    panel, zero = scratch + SCRATCH_PANEL, scratch + SCRATCH_OUT
    clear(zero)
    for j in range(first, last):
        for r in range(rows):
            finish_row(args, j, r, zero)
    j = first
    while j < last:
        wide = COLUMN_VECTORS if last - j >= COLUMN_VECTORS else 1
        for start in range(0, blocks, PANEL // UNIT):
            count = min(PANEL // UNIT, blocks - start)
            for m in range(wide):
                unpack(weight + (j + m) * tile_bytes + start * BLOCK_BYTES, count, panel + m * PANEL * 64)
            if wide > 1:
                wide_rows(panel, x + 4 * start * UNIT, x_stride, count * UNIT, rows, y + 64 * j, y_stride)
            else:
                thin_rows(panel, x + 4 * start * UNIT, x_stride, count * UNIT, rows, y + 64 * j, y_stride)
        j += wide


def _many_pairs_template(args: int, rows: int, first: int, last: int, scratch: int) -> None:
    """The same with panels of 16-bit pairs and the rows' records."""
    weight, tile_bytes, blocks = ld_i64(args + 8 * A_WEIGHT), ld_i64(args + 8 * A_TILE_BYTES), ld_i64(args + 8 * A_BLOCKS)
    x, x_stride = ld_i64(args + 8 * A_PAIRS), ld_i64(args + 8 * A_PAIRS_STRIDE)
    y, y_stride = ld_i64(args + 8 * A_Y), ld_i64(args + 8 * A_Y_STRIDE)
    panel, zero = scratch + SCRATCH_PANEL, scratch + SCRATCH_OUT
    clear(zero)
    for j in range(first, last):
        for r in range(rows):
            finish_row(args, j, r, zero)
    j = first
    while j < last:
        wide = COLUMN_PAIRS if last - j >= COLUMN_PAIRS else 1
        for start in range(0, blocks, PANEL // UNIT):
            count = min(PANEL // UNIT, blocks - start)
            cells = count * UNIT // RECORD_FEATURES
            for m in range(wide):
                unpack(weight + (j + m) * tile_bytes + start * BLOCK_BYTES, count, panel + m * PANEL_BYTES)
            here = x + start * (UNIT // RECORD_FEATURES) * PAIRS_RECORD
            if wide > 1:
                wide_rows(panel, here, x_stride, cells, rows, y + 64 * j, y_stride)
            else:
                thin_rows(panel, here, x_stride, cells, rows, y + 64 * j, y_stride)
        j += wide


def _pair_rows_template(panel: int, x: int, x_stride: int, cells: int, rows: int, y: int, y_stride: int) -> None:
    """y += x times the panel, in register tiles of as many rows as fit."""
    r = 0
    while r < rows:
        xr, yr = x + r * x_stride, y + r * y_stride
        if rows - r >= STEP_BIG:
            tile_big(panel, PANEL_BYTES, xr, x_stride, cells, yr, y_stride)
            r += STEP_BIG
        elif rows - r >= STEP_MIDDLE:
            tile_middle(panel, PANEL_BYTES, xr, x_stride, cells, yr, y_stride)
            r += STEP_MIDDLE
        else:
            tile_one(panel, PANEL_BYTES, xr, x_stride, cells, yr, y_stride)
            r += 1


def _panel_rows_template(panel: int, x: int, x_stride: int, k: int, rows: int, y: int, y_stride: int) -> None:
    """y += x times the panel, in register tiles of as many rows as fit."""
    r = 0
    while r < rows:
        xr, yr = x + r * x_stride, y + r * y_stride
        if rows - r >= STEP_BIG:
            tile_big(panel, 64, PANEL * 64, xr, x_stride, k, yr, y_stride)
            r += STEP_BIG
        elif rows - r >= STEP_MIDDLE:
            tile_middle(panel, 64, PANEL * 64, xr, x_stride, k, yr, y_stride)
            r += STEP_MIDDLE
        else:
            tile_one(panel, 64, PANEL * 64, xr, x_stride, k, yr, y_stride)
            r += 1


def specialise(template: Any, name: str, **values: Any) -> Any:
    """A copy of `template` whose globals have these values: Numba sees constants, and its cache a name of its own."""
    function = FunctionType(template.__code__, {**template.__globals__, **values}, name)
    function.__qualname__ = name
    function.__module__ = template.__module__
    return function


def row_parts(family: Family, jit: Jit) -> dict[str, Any]:
    """`few_rows(args, number, rows, first, last, scratch)` and `many_rows(args, rows, first, last, scratch)`, compiled by `jit`."""
    constants = {"UNIT": family.unit, "BLOCK_BYTES": family.block_bytes, "WHOLE": family.whole, "finish_row": jit(_finish_row, words(4))}
    few = specialise(
        _few_rows_template,
        f"few_rows_{family.name}",
        dot1=_dot(family, 1),
        dot2=_dot(family, 2),
        dot4=_dot(family, 4),
        dot8=_dot(family, 8 if WIDE else 4),
        **constants,
    )
    many = _many_pairs(family, jit, constants) if in_pairs(family) else _many_floats(family, jit, constants)
    return {"few_rows": jit(few, words(6)), "many_rows": jit(many, words(5))}


def in_pairs(family: Family) -> bool:
    """Whether steps of many rows take the rows as records of pairs."""
    return PAIRS and isinstance(family, Whole)


def _many_floats(family: Family, jit: Jit, constants: dict[str, Any]) -> Any:
    wide, thin = (
        jit(
            specialise(_panel_rows_template, name, tile_big=tiles[0], tile_middle=tiles[1], tile_one=tiles[2]),
            words(7),
        )
        for name, tiles in (("panel_rows_wide", _WIDE_TILES), ("panel_rows_thin", _THIN_TILES))
    )
    return specialise(
        _many_rows_template, f"many_rows_{family.name}", unpack=_unpack(family), wide_rows=wide, thin_rows=thin, **constants
    )


def _many_pairs(family: Family, jit: Jit, constants: dict[str, Any]) -> Any:
    assert isinstance(family, Whole)
    part, minimums = family.part, family.minimums
    panel_bytes = PANEL // RECORD_FEATURES * cell_bytes(part, minimums)
    rows_of = []
    for vectors in (COLUMN_PAIRS, 1):
        name = f"pair_rows_{vectors}_{part}{'_min' if minimums else ''}"
        big, middle, one = (pair_tile(vectors, n, part, minimums) for n in PAIR_STEPS)
        steps = {"STEP_BIG": PAIR_STEPS[0], "STEP_MIDDLE": PAIR_STEPS[1], "PANEL_BYTES": panel_bytes}
        rows_of.append(jit(specialise(_pair_rows_template, name, tile_big=big, tile_middle=middle, tile_one=one, **steps), words(7)))
    return specialise(
        _many_pairs_template,
        f"many_pairs_{family.name}",
        unpack=_pairs(family),
        wide_rows=rows_of[0],
        thin_rows=rows_of[1],
        PANEL_BYTES=panel_bytes,
        **constants,
    )


def linear_kernel(family: Family, jit: Jit) -> Any:
    """The plain Python kernel for one family, ready to be compiled; `jit(function, signature)` compiles its parts."""
    return specialise(_template, f"linear_{family.name}", **row_parts(family, jit))
