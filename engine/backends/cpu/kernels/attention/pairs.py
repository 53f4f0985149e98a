"""Attention's products in int16 pairs (vpdpwssd), for large batches: twice as many for each instruction.

They are taken where the settings allow activations of 8 bits in prompts: the logits of a prompt then differ
from those of decoding anyway.

A tile's queries are packed once, the fp16 keys and values of a page before each product:

query     D / 2 pairs of int16, of norm `NORM`; before them, at the end of a line of its own, the float32 by
          which its products are multiplied
keys      for each 16 positions, D / 2 vectors of 16 pairs and one of 16 float32. The norm of each is `NORM`,
          too: by the Cauchy-Schwarz inequality no sum, whole or in part, leaves int32.
values    for each two positions, vectors of 16 pairs, a dimension a lane; the largest number of a position is
          `VALUE`
weights   as queries: softmax's, times what their positions' values were divided by. They add up to at most
          `WEIGHTS`, and so stay within int32 when they are multiplied by values.

Of the largest number, queries, keys, weights and values keep 13 to 16 bits; fp16, which keys and values are
stored in, has 11. All of it depends on nothing but the row and the positions that it sees, so that it is the
same however a prompt is cut into large batches.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.simd import (
    F32,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    const_f32,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    load_half,
    reduce,
    row_addresses,
    splat,
    square_root,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import KIND
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.products import products_of_tiles
from engine.backends.cpu.kernels.attention.tiles import LINE, parts
from engine.backends.cpu.kernels.linear.panel_format import V32I16, pair_products
from engine.backends.kv_formats import CacheType
from engine.core import PAGE_TOKENS

NORM = 32760.0
"""Of a packed query or key; rounding adds at most half to each number."""
VALUE, WEIGHTS, LARGEST = 8192.0, 250e3, 32760.0
"""The largest packed value, sum of packed weights and packed weight."""
ROUNDING = 1.5 * 2**23
"""Added to a float32 between -2^22 and 2^22, it leaves the nearest integer in the lowest bits."""
V16I16 = ir.VectorType(I16, LANES)

# Filled in by `pair_functions`.
pair_tiles: Any = None


def in_pairs(kind: CacheType) -> bool:
    """Whether a cache of this type has such products: where those of a pair are one instruction."""
    return KIND == "vnni" and kind.keys == kind.values == "fp16"


def row_bytes(count: int) -> int:
    """From one packed query of `count` numbers to the next."""
    return 2 * count + LINE


def room_bytes(queries: int, dim: int, width: int) -> int:
    """Scratch bytes of packed queries and of a page's packed keys or values."""
    keys = PAGE_TOKENS // LANES * 2 * LANES * (dim + 2)
    return queries * row_bytes(dim) + max(keys, 2 * PAGE_TOKENS * width + 2 * 4 * PAGE_TOKENS) + LINE


def _rounded(b: ir.IRBuilder, x: Any, scale: Any) -> Any:
    """x * scale as integers in the low 16 bits of 16 int32."""
    return b.bitcast(fma(b, x, scale, const_vector(ROUNDING)), VI32)


def _paired(b: ir.IRBuilder, first: Any, second: Any) -> Any:
    """The low halves of 16 int32 and of 16 others as pairs."""
    return b.or_(b.and_(first, const_vector(0xFFFF, VI32)), b.shl(second, const_vector(16, VI32)))


def _ratio(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x / y, or 0 where y is 0: float32 or vectors of 16."""
    zero = const_f32(0.0) if y.type is F32 else const_vector(0.0)
    return b.select(b.fcmp_ordered("==", y, zero), zero, b.fdiv(x, y))


def _quarter(b: ir.IRBuilder, address: Any, step: int, i: Any, n: int) -> Any:
    """Address of item 4 i + n of those that are `step` bytes apart."""
    return b.add(address, b.add(b.mul(i, ir.Constant(I64, 4 * step)), ir.Constant(I64, step * n)))


def _emit_pack_keys(b: ir.IRBuilder, keys: Any, vectors: Any, fours: Any, out: Any) -> None:
    size = b.mul(fours, ir.Constant(I64, 4 * 2 * LANES))
    with counted_loop(b, vectors) as m:
        block = b.add(keys, b.mul(m, size))
        target = b.add(out, b.mul(m, b.add(size, ir.Constant(I64, LINE))))
        squares = [cgutils.alloca_once(b, VF32) for _ in range(4)]
        for square in squares:
            b.store(const_vector(0.0), square)
        with counted_loop(b, fours) as i:
            for n, square in enumerate(squares):
                x = load_half(b, _quarter(b, block, 2 * LANES, i, n))
                b.store(fma(b, x, x, b.load(square)), square)
        first, second, third, fourth = (b.load(square) for square in squares)
        norm = square_root(b, b.fadd(b.fadd(first, second), b.fadd(third, fourth)))
        scale = _ratio(b, const_vector(NORM), norm)
        with counted_loop(b, fours) as i:
            each = [_rounded(b, load_half(b, _quarter(b, block, 2 * LANES, i, n)), scale) for n in range(4)]
            place = b.add(target, b.mul(i, ir.Constant(I64, 2 * LINE)))
            for n in range(2):
                store(b, _paired(b, each[2 * n], each[2 * n + 1]), place, LINE * n)
        store(b, b.fmul(norm, const_vector(1 / NORM)), b.add(target, size))


def _emit_largest(b: ir.IRBuilder, values: Any, filled: Any, vectors: Any, out: Any) -> None:
    """The fp16 of largest magnitude of each position, without its sign; then 0 up to a multiple of 16."""
    row = b.mul(vectors, ir.Constant(I64, 2 * LANES))
    last = b.and_(b.sub(filled, ir.Constant(I64, 1)), ir.Constant(I64, -LANES))
    store(b, ir.Constant(V16I16, [0] * LANES), b.add(out, b.shl(last, ir.Constant(I64, 1))))
    top = cgutils.alloca_once(b, V16I16)
    with counted_loop(b, filled) as j:
        b.store(ir.Constant(V16I16, [0] * LANES), top)
        first = b.add(values, b.mul(j, row))
        with counted_loop(b, vectors) as m:
            bits = load(b, b.add(first, b.mul(m, ir.Constant(I64, 2 * LANES))), V16I16)
            bits, before = b.and_(bits, ir.Constant(V16I16, [0x7FFF] * LANES)), b.load(top)
            b.store(b.select(b.icmp_unsigned(">", bits, before), bits, before), top)
        kind = ir.FunctionType(I16, [V16I16])
        most = cgutils.get_or_insert_function(b.module, kind, f"llvm.vector.reduce.umax.v{LANES}i16")
        store(b, b.call(most, [b.load(top)]), b.add(out, b.shl(j, ir.Constant(I64, 1))))


def _emit_pack_values(
    b: ir.IRBuilder, values: Any, filled: Any, vectors: Any, factors: Any, out: Any
) -> None:
    half = ir.Constant(I64, 4 * PAGE_TOKENS)
    scales = b.add(factors, half)
    _emit_largest(b, values, filled, vectors, scales)
    sixteens = b.lshr(b.add(filled, ir.Constant(I64, LANES - 1)), ir.Constant(I64, 4))
    with counted_loop(
        b, sixteens
    ) as back:  # from the last, since 16 scales take the place of 32 bit patterns
        i = b.sub(b.sub(sixteens, ir.Constant(I64, 1)), back)
        largest = load_half(b, b.add(scales, b.mul(i, ir.Constant(I64, 2 * LANES))))
        place = b.mul(i, ir.Constant(I64, 4 * LANES))
        store(b, b.fmul(largest, const_vector(1 / VALUE)), b.add(factors, place))
        store(b, _ratio(b, const_vector(VALUE), largest), b.add(scales, place))
    row = b.mul(vectors, ir.Constant(I64, 2 * LANES))
    pairs = b.lshr(b.add(filled, ir.Constant(I64, 1)), ir.Constant(I64, 1))
    with counted_loop(b, pairs) as j:
        place = b.add(scales, b.shl(j, ir.Constant(I64, 3)))
        scale = [splat(b, load(b, place, F32, 4 * n)) for n in range(2)]
        source = b.add(values, b.mul(b.shl(j, ir.Constant(I64, 1)), row))
        target = b.add(out, b.mul(b.shl(j, ir.Constant(I64, 1)), row))
        with counted_loop(b, vectors) as m:
            here = b.add(source, b.mul(m, ir.Constant(I64, 2 * LANES)))
            each = [
                _rounded(b, load_half(b, b.add(here, b.mul(row, ir.Constant(I64, n)))), scale[n])
                for n in range(2)
            ]
            store(b, _paired(b, *each), b.add(target, b.mul(m, ir.Constant(I64, LINE))))


def _write_int16(b: ir.IRBuilder, x: Any, scale: Any, out: Any, i: Any) -> None:
    """Store x * scale as 16 int16, number i at `out`."""
    store(b, b.trunc(_rounded(b, x, scale), V16I16), b.add(out, b.mul(i, ir.Constant(I64, 2 * LANES))))


def _emit_pack_query(b: ir.IRBuilder, x: Any, vectors: Any, out: Any) -> None:
    total = cgutils.alloca_once(b, VF32)
    b.store(const_vector(0.0), total)
    with counted_loop(b, vectors) as i:
        value = load(b, b.add(x, b.mul(i, ir.Constant(I64, 4 * LANES))), VF32)
        b.store(fma(b, value, value, b.load(total)), total)
    norm = square_root(b, splat(b, reduce(b, b.load(total), b.fadd)))
    scale = _ratio(b, const_vector(NORM), norm)
    with counted_loop(b, vectors) as i:
        _write_int16(b, load(b, b.add(x, b.mul(i, ir.Constant(I64, 4 * LANES))), VF32), scale, out, i)
    first = b.extract_element(norm, ir.Constant(I32, 0))
    store(b, b.fmul(first, const_f32(1 / NORM)), out, -4)


def _emit_pack_weights(b: ir.IRBuilder, x: Any, factors: Any, vectors: Any, out: Any) -> None:
    total, top = (cgutils.alloca_once(b, VF32) for _ in range(2))
    b.store(const_vector(0.0), total)
    b.store(const_vector(0.0), top)
    with counted_loop(b, vectors) as i:
        place = b.mul(i, ir.Constant(I64, 4 * LANES))
        value = b.fmul(load(b, b.add(x, place), VF32), load(b, b.add(factors, place), VF32))
        b.store(b.fadd(value, b.load(total)), total)
        before = b.load(top)
        b.store(b.select(b.fcmp_ordered(">", value, before), value, before), top)
        store(b, value, b.add(x, place))
    whole = reduce(b, b.load(total), b.fadd)
    most = reduce(b, b.load(top), lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q))
    by_sum, by_most = b.fmul(whole, const_f32(1 / WEIGHTS)), b.fmul(most, const_f32(1 / LARGEST))
    factor = b.select(b.fcmp_ordered(">", by_sum, by_most), by_sum, by_most)
    scale = splat(b, _ratio(b, const_f32(1.0), factor))
    with counted_loop(b, vectors) as i:
        _write_int16(b, load(b, b.add(x, b.mul(i, ir.Constant(I64, 4 * LANES))), VF32), scale, out, i)
    store(b, factor, out, -4)


pack_keys = intrinsic_function("attention_pack_keys", types.void, (types.int64,) * 4, _emit_pack_keys)
"""pack_keys(keys, vectors, fours, out): fp16 keys of 4 `fours` dimensions, as many vectors of positions."""
pack_values = intrinsic_function("attention_pack_values", types.void, (types.int64,) * 5, _emit_pack_values)
"""pack_values(values, filled, vectors, factors, out): the values of `filled` positions. `factors` become what
their weights are multiplied by, float32, 0 after `filled`; behind them is as much scratch memory.
"""
pack_query = intrinsic_function("attention_pack_query", types.void, (types.int64,) * 3, _emit_pack_query)
"""pack_query(x, vectors, out): a row of `vectors` vectors of float32."""
pack_weights = intrinsic_function(
    "attention_pack_weights", types.void, (types.int64,) * 4, _emit_pack_weights
)
"""pack_weights(x, factors, vectors, out): a row of weights, first multiplied by `factors`, in place."""


def pair_tile(vectors: int, rows: int, fresh: bool) -> Any:
    """tile(w, w_stride, vector_stride, x, x_stride, count, out, out_stride, ahead, end, unit)

    As `tiles.plain_tile` for `count` pairs, without its prefetch: w was just packed. Of keys (`fresh`), the
    sums are also multiplied by the vector of float32 after the pairs.
    """

    def emit(b: ir.IRBuilder, *given: Any) -> None:
        w, w_stride, vector_stride, x, x_stride, count, out, out_stride, *_ = given
        x_rows, out_rows = row_addresses(b, x, x_stride, rows), row_addresses(b, out, out_stride, rows)
        for part in parts(vectors, rows):
            sums = [[cgutils.alloca_once(b, VI32) for _ in part] for _ in range(rows)]
            for row in sums:
                for each in row:
                    b.store(const_vector(0, VI32), each)
            starts = [b.add(w, b.mul(vector_stride, ir.Constant(I64, m))) for m in part]
            with counted_loop(b, count) as k:
                place = b.mul(k, w_stride)
                packed = [load(b, b.add(start, place), V32I16) for start in starts]
                offset = b.shl(k, ir.Constant(I64, 2))
                for t in range(rows):
                    pair = b.bitcast(splat(b, load(b, b.add(x_rows[t], offset), I32)), V32I16)
                    for n, each in enumerate(packed):
                        b.store(pair_products(b, b.load(sums[t][n]), each, pair), sums[t][n])
            after = b.mul(count, w_stride)
            for t in range(rows):
                factor = splat(b, load(b, x_rows[t], F32, -4))
                for n, m in enumerate(part):
                    total = b.sitofp(b.load(sums[t][n]), VF32)
                    if fresh:
                        total = b.fmul(b.fmul(total, load(b, b.add(starts[n], after), VF32)), factor)
                    else:
                        total = fma(b, total, factor, load(b, out_rows[t], VF32, 64 * m))
                    store(b, total, out_rows[t], 64 * m)

    name = f"attention_{'fresh' if fresh else 'added'}_{vectors}x{rows}_pairs"
    return intrinsic_function(name, types.void, (types.int64,) * 11, emit)


# --- of a tile of queries -----------------------------------------------------------------------------------


def _pack_queries(q: int, q_width: int, queries: int, dim: int, out: int) -> None:
    """Pack `queries` (queries, q_width) of `dim` dimensions, a multiple of 16, into rows of `row_bytes`."""
    for i in range(queries):
        pack_query(q + 4 * q_width * i, dim // 16, out + LINE + (2 * dim + LINE) * i)


def _pair_scores_template(
    keys: int, vectors: int, packed: int, queries: int, dim: int, out: int, room: int
) -> None:
    """out (queries, 256) = packed queries times the keys of a page."""
    pack_keys(keys, vectors, dim // 4, room)
    size = 2 * LANES * (dim + 2)
    pair_tiles(
        room, LINE, size, vectors, packed + LINE, 2 * dim + LINE, queries, dim // 2, out, 4 * PAGE_TOKENS,
        0, 0,
    )  # fmt: skip


def _pair_mix_template(
    values: int, filled: int, weights: int, queries: int, width: int, spare: int, out: int, room: int
) -> None:
    """out (queries, width) += weights (queries, 256) times the values of a page; `spare` is for the packed
    weights.
    """
    factors, stride = room + 2 * PAGE_TOKENS * width, 2 * PAGE_TOKENS + LINE
    pack_values(values, filled, width // 16, factors, room)
    for i in range(queries):
        pack_weights(weights + 4 * PAGE_TOKENS * i, factors, (filled + 15) // 16, spare + LINE + stride * i)
    count = (filled + 1) // 2
    pair_tiles(
        room, 4 * width, LINE, width // 16, spare + LINE, stride, queries, count, out, 4 * width, 0, 0
    )  # fmt: skip


def _taken(left: int) -> int:
    """Queries of the next tile: sums of more would leave registers when LLVM takes two pairs at once."""
    return min(left, 4)


def pair_functions(jit: Jit) -> dict[str, Any]:
    """`pack_queries`, `pair_scores` and `pair_mix`, compiled by `jit(function, signature)`."""
    scores = products_of_tiles(
        lambda vectors, n: pair_tile(vectors, n, True), "products_pairs_scores", 0, jit, _taken
    )
    mix = products_of_tiles(
        lambda vectors, n: pair_tile(vectors, n, False), "products_pairs_mix", 0, jit, _taken
    )
    return {
        "pack_queries": jit(_pack_queries, words(5)),
        "pair_scores": jit(specialise(_pair_scores_template, "pair_scores", pair_tiles=scores), words(7)),
        "pair_mix": jit(specialise(_pair_mix_template, "pair_mix", pair_tiles=mix), words(8)),
    }
