"""A kernel that packs weights whose layout only moves bits (`engine.backends.cpu.layouts.bit_moves`)."""

from __future__ import annotations

from collections.abc import Callable
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


def _emit_gather(b: ir.IRBuilder, source: Any, apart: Any, target: Any) -> None:
    """The 16 words of 4 bytes that are `apart` bytes from each other, one after another."""
    for lane in range(LANES):
        store(b, load(b, b.add(source, b.mul(apart, ir.Constant(I64, lane))), I32), target, 4 * lane)


def _rotated(b: ir.IRBuilder, value: ir.Value, by: ir.Value) -> ir.Value:
    kind = ir.FunctionType(VI32, [VI32] * 3)
    function = cgutils.get_or_insert_function(b.module, kind, f"llvm.fshr.v{LANES}i32")
    return b.call(function, [value, value, by])


def _emit_move(bits: int) -> Callable[..., None]:
    def emit(b: ir.IRBuilder, words: Any, field: Any, out: Any) -> None:
        terms = load(b, field, I64, 8 * F_TERMS)
        slot = cgutils.alloca_once(b, VI32)
        b.store(const_vector(0, VI32), slot)
        with counted_loop(b, load(b, field, I64, 8 * F_COUNT)) as i:
            term = b.add(terms, b.mul(i, ir.Constant(I64, TERM_BYTES)))
            offset, rotation, mask = (load(b, term, I32, 4 * word) for word in range(3))
            value = load(b, b.add(words, b.zext(offset, I64)), VI32)
            piece = b.and_(_rotated(b, value, splat(b, rotation)), splat(b, mask))
            b.store(b.or_(b.load(slot), piece), slot)
        flip = splat(b, b.trunc(load(b, field, I64, 8 * F_FLIP), I32))
        value = b.xor(b.load(slot), flip)
        if bits < 32:
            value = b.trunc(value, ir.VectorType(ir.IntType(bits), LANES))
        store(b, value, b.add(out, load(b, field, I64, 8 * F_OUT)))

    return emit


gather = intrinsic_function("gather_rows", types.void, (types.int64,) * 3, _emit_gather)
move_32, move_16, move_8 = (
    intrinsic_function(f"move_{bits}", types.void, (types.int64,) * 3, _emit_move(bits))
    for bits in (32, 16, 8)
)


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
