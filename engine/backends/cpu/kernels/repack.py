"""Kernels that pack weights whose layout only moves bits: into tiles of the CPU's layouts (`bit_moves`), and
of a GPU's (`engine.backends.cuda.bit_moves`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.memory_ops import ld_i32, ld_i64
from engine.backends.cpu.codegen.simd import (
    I32,
    I64,
    LANES,
    VI32,
    const_vector,
    counted_loop,
    intrinsic_function,
    load,
    splat,
    store,
)

(
    K_RAW, K_ROW_BYTES, K_TILES, K_STRETCHES, K_READ_BYTES, K_WORDS, K_OFFSETS, K_PLACES, K_OUT_BYTES,
    K_PANEL, K_FIELDS,
) = range(11)  # fmt: skip
"""Address of the file's rows and bytes of a row; tiles of 16 rows; stretches of a row, and bytes of each;
words read of a stretch, and the address of their offsets (int32); address of the tiles' places; bytes of a
packed stretch of 16 rows, and stretches of a panel. Then for lanes of 4, 2 and 1 bytes: the number of fields,
and their address.
"""
PLACE_BYTES = 24
"""A tile's place is three int64: the address of its first panel, the bytes from there to its second, and the
address of a last, shorter panel.
"""
ARGUMENTS = K_FIELDS + 6
F_OUT, F_FLIP, F_TERMS, F_COUNT = range(4)
"""int64 words of a field: its offset in a stretch of the result, the bits that are inverted, the address of
its terms and their number.
"""
FIELD_BYTES = 32
TERM_BYTES = 12
"""A term is three int32: the offset of a vector of words, how far it is rotated to the right, a mask."""

(
    W_RAW, W_ROW_BYTES, W_PAIRS, W_STRETCHES, W_READ_BYTES, W_WORDS, W_OFFSETS, W_OUT, W_OUT_BYTES,
    W_TILE_BYTES, W_COUNT, W_FIELDS,
) = range(12)  # fmt: skip
"""For a GPU: address of the file's rows and bytes of a row; pairs of tiles of 16 rows; stretches of a row,
and bytes of each; words read of a stretch, first those of row g, then those of row g + 8, and the address of
their offsets (int64) from row g; address of the first tile, bytes of a packed stretch and of a tile; the
number of fields, and their address.
"""
F_APART = 4
"""One more word of a GPU's field: bytes from the word of row g to that of row g + 1."""
WORD_FIELD_BYTES = 40


def _emit_gather(rows: Sequence[int]) -> Callable[..., None]:
    def emit(b: ir.IRBuilder, source: Any, apart: Any, target: Any) -> None:
        """The words of 4 bytes of these rows, `apart` bytes from each other, one after another."""
        for lane, row in enumerate(rows):
            store(b, load(b, b.add(source, b.mul(apart, ir.Constant(I64, row))), I32), target, 4 * lane)

    return emit


def _rotated(b: ir.IRBuilder, value: ir.Value, by: ir.Value) -> ir.Value:
    kind = ir.FunctionType(VI32, [VI32] * 3)
    function = cgutils.get_or_insert_function(b.module, kind, f"llvm.fshr.v{LANES}i32")
    return b.call(function, [value, value, by])


def _emit_field(b: ir.IRBuilder, words: Any, field: Any) -> Any:
    """The 32 bits of a field in each lane."""
    terms = load(b, field, I64, 8 * F_TERMS)
    slot = cgutils.alloca_once(b, VI32)
    b.store(const_vector(0, VI32), slot)
    with counted_loop(b, load(b, field, I64, 8 * F_COUNT)) as i:
        term = b.add(terms, b.mul(i, ir.Constant(I64, TERM_BYTES)))
        offset, rotation, mask = (load(b, term, I32, 4 * word) for word in range(3))
        value = load(b, b.add(words, b.zext(offset, I64)), VI32)
        piece = b.and_(_rotated(b, value, splat(b, rotation)), splat(b, mask))
        b.store(b.or_(b.load(slot), piece), slot)
    return b.xor(b.load(slot), splat(b, b.trunc(load(b, field, I64, 8 * F_FLIP), I32)))


def _emit_move(bits: int) -> Callable[..., None]:
    def emit(b: ir.IRBuilder, words: Any, field: Any, out: Any) -> None:
        value = _emit_field(b, words, field)
        if bits < 32:
            value = b.trunc(value, ir.VectorType(ir.IntType(bits), LANES))
        store(b, value, b.add(out, load(b, field, I64, 8 * F_OUT)))

    return emit


def _emit_scatter(b: ir.IRBuilder, words: Any, field: Any, out: Any, tile_bytes: Any) -> None:
    """Store the words of a field for rows g = 0 .. 7 of a tile, then of the next tile."""
    value = _emit_field(b, words, field)
    apart, first = load(b, field, I64, 8 * F_APART), b.add(out, load(b, field, I64, 8 * F_OUT))
    for lane in range(LANES):
        at = b.add(first, b.mul(apart, ir.Constant(I64, lane % 8)))
        store(b, b.extract_element(value, ir.Constant(I32, lane)), b.add(at, tile_bytes) if lane > 7 else at)


gather = intrinsic_function("gather_rows", types.void, (types.int64,) * 3, _emit_gather(range(LANES)))
gather_pairs = intrinsic_function(
    "gather_pairs", types.void, (types.int64,) * 3, _emit_gather([*range(8), *range(16, 24)])
)
move_32, move_16, move_8 = (
    intrinsic_function(f"move_{bits}", types.void, (types.int64,) * 3, _emit_move(bits))
    for bits in (32, 16, 8)
)
scatter = intrinsic_function("scatter_words", types.void, (types.int64,) * 4, _emit_scatter)


def repack(args: int, step: int, tile: int, scratch: int) -> None:
    """Pack all tiles of `args`; `scratch` has 64 bytes for each word of a stretch."""
    row_bytes, stretches = ld_i64(args + 8 * K_ROW_BYTES), ld_i64(args + 8 * K_STRETCHES)
    read_bytes, out_bytes = ld_i64(args + 8 * K_READ_BYTES), ld_i64(args + 8 * K_OUT_BYTES)
    words, offsets = ld_i64(args + 8 * K_WORDS), ld_i64(args + 8 * K_OFFSETS)
    panel, wide = ld_i64(args + 8 * K_PANEL), args + 8 * K_FIELDS
    narrow, narrowest = wide + 16, wide + 32
    for t in range(ld_i64(args + 8 * K_TILES)):
        row = ld_i64(args + 8 * K_RAW) + LANES * t * row_bytes
        place = ld_i64(args + 8 * K_PLACES) + PLACE_BYTES * t
        for s in range(stretches):
            source = row + s * read_bytes
            for k in range(words):
                gather(source + ld_i32(offsets + 4 * k), row_bytes, scratch + 64 * k)
            p = s // panel
            begin = ld_i64(place + 16)
            if (p + 1) * panel <= stretches:
                begin = ld_i64(place) + p * ld_i64(place + 8)
            out = begin + (s - p * panel) * out_bytes
            for i in range(ld_i64(wide)):
                move_32(scratch, ld_i64(wide + 8) + FIELD_BYTES * i, out)
            for i in range(ld_i64(narrow)):
                move_16(scratch, ld_i64(narrow + 8) + FIELD_BYTES * i, out)
            for i in range(ld_i64(narrowest)):
                move_8(scratch, ld_i64(narrowest + 8) + FIELD_BYTES * i, out)


def repack_words(args: int, step: int, tile: int, scratch: int) -> None:
    """Pack all pairs of tiles of `args`; `scratch` has 64 bytes for each word of a stretch."""
    row_bytes, stretches = ld_i64(args + 8 * W_ROW_BYTES), ld_i64(args + 8 * W_STRETCHES)
    read_bytes, out_bytes = ld_i64(args + 8 * W_READ_BYTES), ld_i64(args + 8 * W_OUT_BYTES)
    words, offsets = ld_i64(args + 8 * W_WORDS), ld_i64(args + 8 * W_OFFSETS)
    fields, tile_bytes = ld_i64(args + 8 * W_FIELDS), ld_i64(args + 8 * W_TILE_BYTES)
    for p in range(ld_i64(args + 8 * W_PAIRS)):
        source = ld_i64(args + 8 * W_RAW) + 2 * LANES * p * row_bytes
        out = ld_i64(args + 8 * W_OUT) + 2 * p * tile_bytes
        for _ in range(stretches):
            for k in range(words):
                gather_pairs(source + ld_i64(offsets + 8 * k), row_bytes, scratch + 64 * k)
            for i in range(ld_i64(args + 8 * W_COUNT)):
                scatter(scratch, fields + WORD_FIELD_BYTES * i, out, tile_bytes)
            source += read_bytes
            out += out_bytes
