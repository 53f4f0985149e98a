"""Register tiles of attention's products, and how many queries each takes.

A tile multiplies cached keys or values by up to six queries. Every tile size sums a query in the same order,
so that its bits do not depend on the other queries. Tiles prefetch what is read next: keys and values are
read once a step from main memory, and the CPU cannot predict where the next page is.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.simd import (
    AMD,
    F32,
    I16,
    I64,
    LANES,
    WIDE,
    OutputTile,
    const_vector,
    counted_loop,
    fp16_values,
    intrinsic_function,
    load,
    load_half,
    prefetch,
    row_addresses,
    splat,
    store,
)
from engine.backends.cpu.kernels.linear.gemm import load_float

I8 = ir.IntType(8)
VECTORS = 4 if WIDE else 2
"""Vectors of 16 columns in a wide tile."""
ROW_STEPS = (6, 4, 3, 2, 1)
"""Queries of the wide tiles."""
MOST_SUMS = 24 if WIDE else 6
"""Sums of 16 numbers that fit into the registers, beside what they are made of."""
THIN_STEPS = (3, 1)
"""Queries of the tiles with one vector."""
STRIP_ROWS = 64
"""Rows of a strip of keys or values: 16 KB as float32."""
STRIP_FROM = 24
"""Queries from which on a strip takes less time than as many conversions of each number in registers."""
LINE = 64
REGION = 4096
"""Bytes of the regions of memory whose lines are prefetched in turn: memory sends more of them at a time than
of one region, whose lines may all be in one of its banks.
"""
FP8_FACTOR = 256.0
"""The factor by which fp8 values are too small as tiles read them."""


def rows_at_once(left: int) -> int:
    """Queries of the next tile: eight are taken as 4 and 4 rather than 6 and 2, seven as 4 and 3."""
    if left >= 9 or left == 6:
        return 6
    return min(left, 4)


def parts(vectors: int, rows: int) -> list[range]:
    """The vectors of a tile, divided so that each part's sums for `rows` queries fit into the registers."""
    most = max(1, MOST_SUMS // rows)
    return [range(first, min(first + most, vectors)) for first in range(0, vectors, most)]


def load_small_e4m3(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """16 fp8 values divided by `FP8_FACTOR`, float32: shifted into fp16, only the exponent's bias differs."""
    wide = ir.VectorType(I16, LANES)
    byte = b.sext(load(b, address, ir.VectorType(I8, LANES)), wide)
    return fp16_values(b, b.and_(b.shl(byte, const_vector(7, wide)), const_vector(0xBFFF, wide)))


READERS = {"fp32": (4, load_float), "fp16": (2, load_half), "fp8": (1, load_small_e4m3)}


def ask_for(b: ir.IRBuilder, address: ir.Value, lines: int) -> None:
    """Prefetch `lines` cache lines into the second-level cache, since half a page does not fit in the first;
    on AMD's processors into both: on Zen 5 more such requests are under way at a time.
    """
    for i in range(lines):
        prefetch(b, address, LINE * i, 1 if AMD else 2)


class Walk:
    """Prefetches a block of memory while a loop runs: `lines` at a place of the first region, then at the
    same place of each further one before `end`, then `unit` bytes further in the first. It begins at `place`.
    """

    def __init__(self, b: ir.IRBuilder, place: ir.Value, end: ir.Value, unit: ir.Value, lines: int) -> None:
        self._b, self._end, self._unit, self._lines = b, end, unit, lines
        self._first, self._place = (cgutils.alloca_once_value(b, place) for _ in range(2))

    def step(self) -> None:
        """Prefetch the lines of one place."""
        b, first, place = self._b, self._b.load(self._first), self._b.load(self._place)
        ask_for(b, place, self._lines)
        following, further = b.add(place, ir.Constant(I64, REGION)), b.add(first, self._unit)
        inside = b.icmp_unsigned("<", following, self._end)
        b.store(b.select(inside, first, further), self._first)
        b.store(b.select(inside, following, further), self._place)


def _ask_for_all(b: ir.IRBuilder, address: Any, count: Any) -> None:
    with counted_loop(b, count) as i:
        ask_for(b, b.add(address, b.mul(i, ir.Constant(I64, LINE))), 1)


ask_for_all = intrinsic_function("ask_for_all", types.void, (types.int64,) * 2, _ask_for_all)
"""ask_for_all(address, count): `ask_for` as many lines at once, as fast as memory can send them."""


def plain_tile(vectors: int, rows: int, number: str, fresh: bool, asks: bool = True) -> Any:
    """tile(w, w_stride, vector_stride, x, x_stride, count, out, out_stride, ahead, end, unit)

    out[t, 16 m + lane] = (0 if `fresh`, else itself) + sum over k < count of w[k, m, lane] * x[t, k]. Strides
    are in bytes; w is fp32, fp16 or fp8 (`number`). If it `asks`, it prefetches with each k as many bytes as
    it reads of w, in a `Walk` from `ahead` to `end`.
    """
    size, read = READERS[number]
    step = vectors * LANES * size

    def emit(
        b: ir.IRBuilder,
        w: Any,
        w_stride: Any,
        vector_stride: Any,
        x: Any,
        x_stride: Any,
        count: Any,
        out: Any,
        out_stride: Any,
        ahead: Any,
        end: Any,
        unit: Any,
    ) -> None:
        x_rows = row_addresses(b, x, x_stride, rows)
        for part in parts(vectors, rows):
            out_rows = row_addresses(b, b.add(out, ir.Constant(I64, 64 * part.start)), out_stride, rows)
            tile = OutputTile(b, len(part), out_rows, fresh)
            starts = [b.add(w, b.mul(vector_stride, ir.Constant(I64, m))) for m in part]
            walk = Walk(b, ahead, end, unit, max(1, step // LINE)) if asks and part.start == 0 else None
            with counted_loop(b, count) as k:
                if walk is not None:
                    walk.step()
                row = b.mul(k, w_stride)
                weights = [read(b, b.add(start, row)) for start in starts]
                offset = b.shl(k, ir.Constant(I64, 2))
                for t in range(rows):
                    value = splat(b, load(b, b.add(x_rows[t], offset), F32))
                    for m, each in enumerate(weights):
                        tile.sums.add_product(tile.slot(t, m), value, each)
            tile.write()

    name = f"attention_{'fresh' if fresh else 'added'}_{vectors}x{rows}_{number}{'' if asks else '_here'}"
    return intrinsic_function(name, types.void, (types.int64,) * 11, emit)


def unpack_strip(number: str) -> Any:
    """unpack(w, w_stride, vector_stride, count, out, ahead, end): `VECTORS` vectors of each of `count` rows
    as float32 (count, 16 VECTORS); the arguments are those of `plain_tile`, and as many bytes as it reads are
    prefetched in the same way.
    """
    size, read = READERS[number]
    step = VECTORS * LANES * size

    def emit(
        b: ir.IRBuilder, w: Any, w_stride: Any, vector_stride: Any, count: Any, out: Any, ahead: Any, end: Any
    ) -> None:
        starts = [b.add(w, b.mul(vector_stride, ir.Constant(I64, m))) for m in range(VECTORS)]
        walk = Walk(b, ahead, end, ir.Constant(I64, max(LINE, step)), max(1, step // LINE))
        with counted_loop(b, count) as k:
            walk.step()
            target = b.add(out, b.mul(k, ir.Constant(I64, 4 * LANES * VECTORS)))
            for m, start in enumerate(starts):
                store(b, read(b, b.add(start, b.mul(k, w_stride))), target, 4 * LANES * m)

    return intrinsic_function(f"unpack_strip_{number}", types.void, (types.int64,) * 7, emit)
