"""Large batches times integer weights, which are unpacked once into a packed panel that stays in the
first-level cache, while register tiles run over all rows; `panel_format` says how both are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.simd import (
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    WIDE,
    OutputTile,
    const_vector,
    fma,
    intrinsic_function,
    load,
    reduce,
    splat,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import LIMIT, V64I8, byte_sums, spread_word
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.gemm import tile_function
from engine.backends.cpu.kernels.linear.panel_format import (
    FAST_INNER_PRODUCT,
    INT8_ACTIVATIONS,
    INT16_ACTIVATIONS,
    PLAIN_QUADS,
    V32I16,
    PanelFormat,
    products_by_sums,
)
from engine.backends.cpu.kernels.packed_activations import FEATURES, Quantised, each_quantised

LARGEST_BYTE = 127
ROW_STEPS = (6, 4) if FAST_INNER_PRODUCT else (6, 2) if WIDE else (3, 1)
COLUMN_VECTORS = 2 if WIDE else 1

(P_X, P_X_STRIDE, P_Y, P_Y_STRIDE, P_BLOCKS) = range(5)
"""Of the pack kernels: addresses and strides in bytes of x and y, and blocks of 32 features in a row."""


def _adjacent_products(b: ir.IRBuilder, numbers: ir.Value, first: int) -> ir.Value:
    """x0 x1 + x2 x3 + ... of 16 int32 modulo 2^32, `PLAIN_QUADS` left out; `first`: the first quad."""
    # The next number for each even lane, 0 for the others.
    mask = [i + 1 if i % 2 == 0 and first + i // 4 not in PLAIN_QUADS else LANES for i in range(LANES)]
    others = b.shuffle_vector(
        numbers, const_vector(0, VI32), ir.Constant(VI32, [ir.Constant(I32, i) for i in mask])
    )
    return reduce(b, b.mul(numbers, others), b.add)


def _emit_row(form: PanelFormat) -> Any:
    """row(x, count, packed): 32 `count` float32 values to `count` blocks of packed activations."""
    number = ir.VectorType(I16 if form.bits == 16 else I8, LANES)
    order = [4 * (i // 4) + (0, 2, 1, 3)[i % 4] if form.bits == 16 else i for i in range(FEATURES)]
    mask = ir.Constant(ir.VectorType(I32, FEATURES), [ir.Constant(I32, k) for k in order])

    def emit(b: ir.IRBuilder, x: Any, count: Any, packed: Any) -> None:
        def put(i: ir.Value, block: Quantised) -> None:
            target = b.add(packed, b.mul(i, ir.Constant(I64, form.activation_bytes)))
            parts = [b.fptosi(part, VI32) for part in block.numbers]
            store(b, b.shuffle_vector(*[b.trunc(part, number) for part in parts], mask), target)
            store(b, block.scale, target, form.scale_at)
            for n, total in enumerate(block.sums):
                store(b, b.fmul(total, block.scale), target, form.scale_at + 4 + 4 * n)
            if form.negatives:
                negatives = [b.neg(_adjacent_products(b, part, 4 * n)) for n, part in enumerate(parts)]
                for n, negative in enumerate([*negatives, b.add(*negatives)]):
                    store(b, negative, target, form.scale_at + 16 + 4 * n)

        each_quantised(b, x, count, put, LIMIT if form.bits == 16 else LARGEST_BYTE)

    return emit


pack_int16_row = intrinsic_function(
    "pack_int16_row", types.void, (types.int64,) * 3, _emit_row(INT16_ACTIVATIONS)
)
pack_int8_row = intrinsic_function(
    "pack_int8_row", types.void, (types.int64,) * 3, _emit_row(INT8_ACTIVATIONS)
)
pack_row: Any = None


def _pack_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: float32 to packed activations."""
    x = ld_i64(args + 8 * P_X) + tile * ld_i64(args + 8 * P_X_STRIDE)
    y = ld_i64(args + 8 * P_Y) + tile * ld_i64(args + 8 * P_Y_STRIDE)
    pack_row(x, ld_i64(args + 8 * P_BLOCKS), y)


pack_int16 = specialise(_pack_template, "pack_int16", pack_row=pack_int16_row)
pack_int8 = specialise(_pack_template, "pack_int8", pack_row=pack_int8_row)
"""Kernels that pack rows to activations of 16 and of 8 bits."""


def add_scaled(
    b: ir.IRBuilder,
    form: PanelFormat,
    part: int,
    products: ir.Value,
    row: ir.Value,
    numbers: tuple[ir.Value, ir.Value | None],
    total: ir.Value,
) -> ir.Value:
    """total + minimums * sum of activations + a part's integer sum * the scales of weights and activations,
    in the order of `emit_dot`.

    `row` is the address of the block of packed activations, `numbers` the part's scales and minimums. The
    sums are int32, or float32 without a fraction.
    """
    scale, minimum = numbers
    if minimum is not None:
        total = fma(b, minimum, splat(b, load(b, row, F32, form.sum_at(part))), total)
    whole = b.sitofp(products, VF32) if products.type == VI32 else products
    value = b.fmul(whole, splat(b, load(b, row, F32, form.scale_at)))
    return fma(b, scale, value, total)


def _scale_tile(
    b: ir.IRBuilder,
    form: PanelFormat,
    part: int,
    sums: list[ir.Value],
    starts: list[ir.Value],
    packed: Sequence[ir.Value],
    tile: OutputTile,
) -> None:
    """Add the scaled sums of a part of all rows and columns to the tile."""
    at = form.numbers_at(part)
    for m, start in enumerate(starts):
        scale = load(b, start, VF32, at)
        minimum = load(b, start, VF32, at + 64) if form.mins else None
        for t, block in enumerate(packed):
            slot = tile.slot(t, m)
            total = add_scaled(b, form, part, sums[slot], block, (scale, minimum), tile.sums.get(slot))
            tile.sums.set(slot, total)


def _in_int16(
    b: ir.IRBuilder,
    tile: OutputTile,
    sums: list[ir.Value],
    starts: list[ir.Value],
    packed: list[ir.Value],
    ks: range,
) -> list[ir.Value]:
    """The tile's sums plus the products of vectors `ks` of bytes, which are added in int16."""
    out = list(sums)
    for m, start in enumerate(starts):
        slots = [tile.slot(t, m) for t in range(len(packed))]
        # Lazily, so that each activation is loaded where it is used.
        quads = ((load(b, start, V64I8, 64 * k), [spread_word(b, x, 4 * k) for x in packed]) for k in ks)
        found = byte_sums(b, [sums[slot] for slot in slots], quads, False, len(ks) > 1)
        for slot, total in zip(slots, found, strict=True):
            out[slot] = total
    return out


def integer_tile(vectors: int, rows: int, form: PanelFormat) -> Any:
    """The tile (`tile_function`) of x (rows, 32 count), packed activations, times a panel of this form."""
    vector = V32I16 if form.bits == 16 else V64I8

    def add(
        b: ir.IRBuilder, tile: OutputTile, x_rows: list[ir.Value], columns: list[ir.Value], i: ir.Value
    ) -> None:
        starts = [b.add(column, b.mul(i, ir.Constant(I64, form.size))) for column in columns]
        packed = [b.add(row, b.mul(i, ir.Constant(I64, form.activation_bytes))) for row in x_rows]
        for part in range(FEATURES // form.part):
            sums = [form.start(b, start, block, part) for block in packed for start in starts]
            for k in form.steps(part):
                if form.fast:
                    quads = [[load(b, start, vector, 64 * (k + i)) for i in range(2)] for start in starts]
                    sums = products_by_sums(b, sums, quads, packed, k)
                    continue
                if form.quads_in_int16 > 1:
                    ks = range(k, min(k + form.quads_in_int16, form.steps(part).stop))
                    sums = _in_int16(b, tile, sums, starts, packed, ks)
                    continue
                weights = [load(b, start, vector, 64 * k) for start in starts]
                for t, block in enumerate(packed):
                    value = splat(b, load(b, block, I32, 4 * k))
                    for m in range(vectors):
                        slot = tile.slot(t, m)
                        sums[slot] = form.product(b, sums[slot], weights[m], value)
            _scale_tile(b, form, part, sums, starts, packed, tile)

    return tile_function(f"{form.name}_{vectors}x{rows}", vectors, rows, add)
