"""y = x W^T with an epilogue (+ bias, + residual): the matrix product, compiled for each weight layout.

Small batch (one to 16 rows: decoding, verifying drafts): every packed block is read once and multiplied by
all rows, or with AMX, if they are many, as in a large batch. Each row is summed in the same order whatever
the other rows are, so a drafted token gets exactly the logits that it would get alone. Large batch (prefill):
blocks are unpacked into a packed panel, of integers or float32, that stays in the first-level cache, and
register tiles run over all rows (`direct`: a few rows without a panel of integers), or the tiles of `amx`.
Layouts of plain numbers take float32 activations; integer layouts take them in 16 bits
(`packed_activations`), or, in large batches and if the settings ask for it, in 8. With 16 bits a row's sums
are the same in both batches: each is one chain that begins with bias and residual.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64, st_i64
from engine.backends.cpu.codegen.simd import I64, VF32, intrinsic_function, load, store
from engine.backends.cpu.codegen.simd_bytes import AMX
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.linear import amx, direct
from engine.backends.cpu.kernels.linear.dots import PAIRS_FROM, clear, dots_kernel
from engine.backends.cpu.kernels.linear.gemm import COLUMN_VECTORS
from engine.backends.cpu.kernels.linear.integer_gemm import pack_int16_row
from engine.backends.cpu.kernels.linear.panel_format import INT16_ACTIVATIONS
from engine.backends.cpu.kernels.linear.panels import panel_format_of, panel_parts
from engine.backends.cpu.kernels.packed_activations import FEATURES as PACKED_FEATURES
from engine.backends.cpu.kernels.packed_activations import PACKED_BYTES, quantise_row
from engine.backends.cpu.layouts.interleave import MOST_INTERLEAVED, PANEL
from engine.backends.cpu.layouts.layout import CHAINS, WeightLayout
from engine.backends.cpu.runtime.step_block import LOGIT_ROWS, ROWS, SERIAL, SMALL_BATCH

PAIR_BYTES = INT16_ACTIVATIONS.activation_bytes
FEWEST_ROWS = 9
"""AMX multiplies a small batch of at least so many rows, as a large one: with fewer that takes longer."""
MOST_PACKED = max(PACKED_BYTES, *(form.activation_bytes for form in amx.FORMATS.values()))
"""Bytes of a small batch's row of 32 packed activations, at most."""
LARGE_TILES, LARGE_ROWS = 4, 128 if AMX else 132
"""Weight tiles and rows of a large batch's tile: enough columns to use a panel's part of x again, few enough
rows that all threads have work; whole register tiles of 6 rows, or of AMX's 16.
"""

# Words of the argument block: the weight's address, bytes of its tiles, tiles, blocks of a tile; address and
# stride (bytes) of x and y; bias and residual (0: none); weight tiles of a small batch's tile; whether rows
# are those with logits; columns of W; number of the input; its packed form (0: none) and stride; how many of
# W's tiles are interleaved; how many bytes ahead a small batch's products prefetch W (0: with one row not at
# all, negative: with one row into the second-level cache alone); which row of the packed form the first is.
(
    A_WEIGHT, A_TILE_BYTES, A_TILES, A_BLOCKS, A_X, A_X_STRIDE, A_Y, A_Y_STRIDE,
    A_BIAS, A_RESIDUAL, A_GROUP, A_LOGITS, A_COLUMNS, A_INPUT, A_PACKED, A_PACKED_STRIDE, A_INTERLEAVED,
    A_AHEAD, A_FIRST,
) = range(19)  # fmt: skip
ARGUMENTS = 19

SCRATCH_OUT = 64
OUT_BYTES = 64 * SMALL_BATCH
"""A tile's sums: for some numbers of rows, those of a few that repeat the last one follow."""
SCRATCH_PANEL = SCRATCH_OUT + OUT_BYTES * MOST_INTERLEAVED
SCRATCH_SUMS = SCRATCH_PANEL + COLUMN_VECTORS * PANEL * 64
"""A large batch's sums. In y, whose rows are often a power of two apart, they would share a few sets of the
caches.
"""
SCRATCH_PACKED = SCRATCH_SUMS + LARGE_TILES * LARGE_ROWS * 64


def scratch_bytes(columns: int) -> int:
    """Scratch bytes of a thread for inputs of up to `columns` features: a small batch's packed rows, and an
    argument block after them.
    """
    return SCRATCH_PACKED + SMALL_BATCH * MOST_PACKED * (columns // PACKED_FEATURES + 1) + 8 * ARGUMENTS


def _emit_finish(b: ir.IRBuilder, value: Any, bias: Any, residual: Any, y: Any) -> None:
    total = load(b, value, VF32)
    zero = ir.Constant(I64, 0)
    for extra in (bias, residual):
        # A missing term (address 0) reads the value itself and drops it: select needs no branch.
        there = b.icmp_signed("!=", extra, zero)
        addend = load(b, b.select(there, extra, value), VF32)
        total = b.select(there, b.fadd(total, addend), total)
    store(b, total, y)


def _emit_move(b: ir.IRBuilder, source: Any, target: Any) -> None:
    store(b, load(b, source, VF32), target)


finish = intrinsic_function("finish", types.void, (types.int64,) * 4, _emit_finish)
move = intrinsic_function("move", types.void, (types.int64,) * 2, _emit_move)
# Filled in for each weight layout by `linear_kernel`; declared here for type checkers.
dots: Any = None
unpack: Any = None
small_batch: Any = None
large_batch: Any = None
panel_batch: Any = None
pack_row: Any = None
start_row: Any = None
end_row: Any = None
finish_row: Any = None
start_sums: Any = None
write_sums: Any = None
wide_rows: Any = None
thin_rows: Any = None
few_rows: Any = None
UNIT = BLOCK_BYTES = PANEL_BYTES = X_BYTES = X_UNIT = WIDE_VECTORS = 0
FEW_ROWS = FEW_BLOCKS = 0
PANELS_FROM = SMALL_BATCH + 1
INTEGER = INTEGER_PANEL = ONE_CHAIN = False


def _template(args: int, step: int, tile: int, scratch: int) -> None:
    rows = ld_i64(step + 8 * (LOGIT_ROWS if ld_i64(args + 8 * A_LOGITS) else ROWS))
    tiles = ld_i64(args + 8 * A_TILES)
    if rows <= SMALL_BATCH:
        first, number = tile * ld_i64(args + 8 * A_GROUP), ld_i64(step + 8 * SERIAL)
        last = min(first + ld_i64(args + 8 * A_GROUP), tiles)
        if rows < PANELS_FROM:
            small_batch(args, number, rows, first, last, scratch)
        else:
            panel_batch(args, number, rows, first, last, scratch)
    else:
        chunks = (tiles + LARGE_TILES - 1) // LARGE_TILES
        first, start = tile % chunks * LARGE_TILES, tile // chunks * LARGE_ROWS
        large_batch(
            args, start, min(LARGE_ROWS, rows - start), first, min(first + LARGE_TILES, tiles), scratch
        )


def _small_batch_template(args: int, number: int, rows: int, first: int, last: int, scratch: int) -> None:
    """Read every packed block of weight tiles first .. last - 1 once and multiply it by all rows.

    `first` is a multiple of the tiles that are interleaved.

    `number` and the number of the input say which packed input the scratch memory holds.
    """
    weight, tile_bytes, blocks = (
        ld_i64(args + 8 * A_WEIGHT),
        ld_i64(args + 8 * A_TILE_BYTES),
        ld_i64(args + 8 * A_BLOCKS),
    )
    x, x_stride = ld_i64(args + 8 * A_X), ld_i64(args + 8 * A_X_STRIDE)
    if INTEGER:
        packed, width = scratch + SCRATCH_PACKED, blocks * UNIT // PACKED_FEATURES
        stride = width * (PAIR_BYTES if rows >= PAIRS_FROM else PACKED_BYTES)
        if ld_i64(scratch) != number or ld_i64(scratch + 8) != ld_i64(args + 8 * A_INPUT):
            # Once for each thread and input.
            for r in range(rows):
                if rows >= PAIRS_FROM:
                    pack_int16_row(x + r * x_stride, width, packed + r * stride)
                else:
                    quantise_row(x + r * x_stride, width, packed + r * stride)
            st_i64(scratch, number)
            st_i64(scratch + 8, ld_i64(args + 8 * A_INPUT))
        x, x_stride = packed, stride
    interleaved, ahead = ld_i64(args + 8 * A_INTERLEAVED), ld_i64(args + 8 * A_AHEAD)
    part = PANEL // UNIT if interleaved > 1 else blocks
    x_bytes = PACKED_BYTES * UNIT // PACKED_FEATURES if INTEGER else 4 * UNIT
    if INTEGER and rows >= PAIRS_FROM:
        x_bytes = PAIR_BYTES * UNIT // PACKED_FEATURES
    out = scratch + SCRATCH_OUT
    while first < last:
        count = min(interleaved, last - first)
        for j in range(count):
            for r in range(min(rows + 1, SMALL_BATCH)):  # an odd number may be taken as one more
                clear(out + OUT_BYTES * j + 64 * r)
        if ONE_CHAIN:
            for j in range(count):
                for r in range(rows):
                    start_row(args, first + j, r, out + OUT_BYTES * j + 64 * r)
        here = weight + first * tile_bytes
        for at in range(0, blocks, part):
            length = min(part, blocks - at)
            for j in range(count):
                dots(here, length, x + at * x_bytes, x_stride, rows, out + OUT_BYTES * j, ahead)
                here += length * BLOCK_BYTES
        for j in range(count):
            for r in range(rows):
                end_row(args, first + j, r, out + OUT_BYTES * j + 64 * r)
        first += count


def _panel_batch_template(args: int, number: int, rows: int, first: int, last: int, scratch: int) -> None:
    """A small batch as a large one: its rows are packed here, once for each thread and input."""
    packed, width = scratch + SCRATCH_PACKED, ld_i64(args + 8 * A_BLOCKS) * UNIT // PACKED_FEATURES
    if ld_i64(scratch) != number or ld_i64(scratch + 8) != ld_i64(args + 8 * A_INPUT):
        for r in range(rows):
            pack_row(ld_i64(args + 8 * A_X) + r * ld_i64(args + 8 * A_X_STRIDE), width, packed, r)
        st_i64(scratch, number)
        st_i64(scratch + 8, ld_i64(args + 8 * A_INPUT))
    block = packed + SMALL_BATCH * MOST_PACKED * width
    for i in range(ARGUMENTS):
        st_i64(block + 8 * i, ld_i64(args + 8 * i))
    st_i64(block + 8 * A_PACKED, packed)
    while first < last:
        large_batch(block, 0, rows, first, min(first + LARGE_TILES, last), scratch)
        first += LARGE_TILES


def _start_row(args: int, j: int, r: int, out: int) -> None:
    """out += bias + residual of the 16 columns from 16 j on of row r."""
    bias, residual = ld_i64(args + 8 * A_BIAS), ld_i64(args + 8 * A_RESIDUAL)
    if bias or residual:
        column = r * ld_i64(args + 8 * A_Y_STRIDE) + 64 * j
        finish(out, bias + 64 * j if bias else 0, residual + column if residual else 0, out)


def _write_row(args: int, j: int, r: int, value: int) -> None:
    """y[r, 16 j .. 16 j + 15] = value."""
    finish(value, 0, 0, ld_i64(args + 8 * A_Y) + r * ld_i64(args + 8 * A_Y_STRIDE) + 64 * j)


def _start_sums(args: int, j: int, start: int, rows: int, sums: int, wide: int) -> None:
    """sums (rows, 16 wide) = bias + residual of the columns from 16 j on of the rows from `start` on."""
    extra = ld_i64(args + 8 * A_BIAS) or ld_i64(args + 8 * A_RESIDUAL)
    for r in range(rows):
        for m in range(wide):
            clear(sums)
            if extra:
                start_row(args, j + m, start + r, sums)
            sums += 64


def _write_sums(sums: int, rows: int, wide: int, y: int, y_stride: int) -> None:
    """The 16 `wide` columns of y at `y` = sums."""
    for r in range(rows):
        for m in range(wide):
            move(sums, y + r * y_stride + 64 * m)
            sums += 64


def _finish_row(args: int, j: int, r: int, value: int) -> None:
    """y[r, 16 j .. 16 j + 15] = value + bias + residual."""
    column = r * ld_i64(args + 8 * A_Y_STRIDE) + 64 * j
    bias, residual = ld_i64(args + 8 * A_BIAS), ld_i64(args + 8 * A_RESIDUAL)
    finish(
        value,
        bias + 64 * j if bias else 0,
        residual + column if residual else 0,
        ld_i64(args + 8 * A_Y) + column,
    )


def _large_batch_template(args: int, start: int, rows: int, first: int, last: int, scratch: int) -> None:
    """Multiply `rows` rows from `start` on by weight tiles first .. last - 1, unpacked panel by panel.

    There are at most `LARGE_TILES` tiles, and `first` is a multiple of those that are interleaved. All tiles
    take one part of x after another, so that the part stays in the cache.
    """
    weight, tile_bytes = ld_i64(args + 8 * A_WEIGHT), ld_i64(args + 8 * A_TILE_BYTES)
    blocks, interleaved = ld_i64(args + 8 * A_BLOCKS), ld_i64(args + 8 * A_INTERLEAVED)
    x_stride = ld_i64(args + 8 * (A_PACKED_STRIDE if INTEGER_PANEL else A_X_STRIDE))
    x, row = ld_i64(args + 8 * A_X), start
    if INTEGER_PANEL:
        x, row = ld_i64(args + 8 * A_PACKED), start + ld_i64(args + 8 * A_FIRST)
    y_stride = ld_i64(args + 8 * A_Y_STRIDE)
    y, panel = ld_i64(args + 8 * A_Y) + start * y_stride, scratch + SCRATCH_PANEL
    together = min(interleaved, last - first)
    few = rows <= FEW_ROWS and blocks <= FEW_BLOCKS
    kept = rows <= LARGE_ROWS and not few
    x += row * x_stride if few else 0
    if not kept:
        clear(scratch + SCRATCH_OUT)
        for j in range(first, last):
            for r in range(start, start + rows):
                finish_row(args, j, r, scratch + SCRATCH_OUT)
    if few and interleaved == 1:
        for j in range(first, last):
            few_rows(weight + j * tile_bytes, blocks, x, x_stride, rows, y + 64 * j, y_stride)
        return
    for at in range(0, blocks, PANEL // UNIT):
        count = min(PANEL // UNIT, blocks - at)
        here, length = x + at * X_BYTES, count * UNIT // X_UNIT
        # Panels of interleaved tiles follow each other, those of others are a tile apart.
        apart = count * BLOCK_BYTES if interleaved > 1 else tile_bytes
        panels = weight + first * tile_bytes + at * together * BLOCK_BYTES
        if few:
            for j in range(first, last):
                few_rows(panels + (j - first) * apart, count, here, x_stride, rows, y + 64 * j, y_stride)
            continue
        # To prefetch: the tile's next part, or that of the tile after these. No prefetcher follows this walk.
        ahead = together * count
        if interleaved == 1 and at + count >= blocks:
            ahead = LARGE_TILES * blocks - at
        j = first
        while j < last:
            wide = WIDE_VECTORS if last - j >= WIDE_VECTORS else 1
            source = panels + (j - first) * apart
            for m in range(wide):
                unpack(source + m * apart, count, panel + m * PANEL_BYTES)
            source += ahead * BLOCK_BYTES
            sums, stride = y + 64 * j, y_stride
            if kept:
                sums, stride = scratch + SCRATCH_SUMS + 64 * rows * (j - first), 64 * wide
                if at == 0:
                    start_sums(args, j, start, rows, sums, wide)
            if wide > 1:
                wide_rows(panel, here, x_stride, row, length, rows, sums, stride, source, apart)
            else:
                thin_rows(panel, here, x_stride, row, length, rows, sums, stride, source, apart)
            if kept and at + count >= blocks:
                write_sums(sums, rows, wide, y + 64 * j, y_stride)
            j += wide


def row_parts(weight_layout: WeightLayout, jit: Jit, bits: int) -> dict[str, Any]:
    """`small_batch` and `large_batch` for a weight layout, compiled by `jit`; see their templates.

    Large batches take activations of `bits` bits, 32 (float32), 16 or 8, if `panel_format_of` has a format.
    """
    constants = {
        "UNIT": weight_layout.unit,
        "BLOCK_BYTES": weight_layout.block_bytes,
        "INTEGER": weight_layout.integer,
        "finish_row": jit(_finish_row, words(4)),
    }
    few = {}
    for each in {bits, 16} if PAIRS_FROM <= SMALL_BATCH else {bits}:
        kernel = direct.few_rows_kernel(weight_layout, panel_format_of(weight_layout, each))
        if kernel is not None and (each == bits or weight_layout.integer):
            few[each] = jit(kernel, words(7))
    one_chain, finish_row = weight_layout.integer or CHAINS == 1, constants["finish_row"]
    start_row = jit(_start_row, words(4))
    small = specialise(
        _small_batch_template,
        f"small_batch_{weight_layout.name}",
        ONE_CHAIN=one_chain,
        start_row=start_row if one_chain else finish_row,
        end_row=jit(_write_row, words(4)) if one_chain else finish_row,
        dots=jit(dots_kernel(weight_layout, few.get(16) if weight_layout.integer else None), words(7)),
        **constants,
    )
    large = specialise(
        _large_batch_template,
        f"large_batch{bits}_{weight_layout.name}",
        start_sums=jit(specialise(_start_sums, "start_sums", start_row=start_row), words(6)),
        write_sums=jit(_write_sums, words(5)),
        **panel_parts(weight_layout, jit, bits, few.get(bits)),
        **constants,
    )
    return {"small_batch": jit(small, words(6)), "large_batch": jit(large, words(6))}


def product_name(operation: str, weight_layout: WeightLayout, bits: int) -> str:
    """A kernel's name: linear_q41, experts_q41, or linear8_q41 if large batches take 8-bit activations."""
    eight = bits == 8 and panel_format_of(weight_layout, 8) is not None
    return f"{operation}{8 if eight else ''}_{weight_layout.name}"


def linear_kernel(weight_layout: WeightLayout, bits: int, jit: Jit) -> Any:
    """The kernel for a weight layout as a Python function; `jit(function, signature)` compiles its parts."""
    name, parts = product_name("linear", weight_layout, bits), row_parts(weight_layout, jit, bits)
    form = panel_format_of(weight_layout, bits)
    if form is None or not form.amx or bits != 16:
        return specialise(_template, name, panel_batch=parts["small_batch"], **parts)
    template = specialise(
        _panel_batch_template, f"panel_batch_{weight_layout.name}", UNIT=weight_layout.unit,
        pack_row=amx.pack_rows(form), large_batch=parts["large_batch"],
    )  # fmt: skip
    batch = jit(template, words(6))
    return specialise(_template, name, panel_batch=batch, PANELS_FROM=FEWEST_ROWS, **parts)
