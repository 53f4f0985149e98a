"""The paged key/value store and causal attention over it, read in place.

Layout of one layer, P pages of 256 positions, G key/value heads, D the head dimension, Dp = D rounded up to 16:
keys   (P, G, 16, D, 16): sixteen neighbouring positions are the lanes, so a score needs no horizontal sum;
values (P, G, 256, Dp): the dimensions are the lanes.
Softmax runs page by page with a running maximum (FlashAttention, arXiv 2205.14135). Up to eight rows, the pages are shared
out over `SPLITS` tiles whose partial results `combine` joins (flash-decoding); a longer step takes eight rows a tile.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.gemm import ATTENTION_ROW_STEPS, ATTENTION_VECTORS, register_tile
from engine.backends.cpu.linear import Jit, specialise, words
from engine.backends.cpu.simd import (
    I64,
    VF32,
    Accumulators,
    const_vector,
    counted_loop,
    exp_vector,
    intrinsic_function,
    ld_f32,
    ld_f64,
    ld_i32,
    ld_i64,
    load,
    reduce,
    splat,
    st_f16,
    st_f32,
    store,
)
from engine.backends.cpu.step import PAGES, POSITIONS, ROWS, SMALL_ROWS
from engine.core import PAGE_TOKENS

SPLITS = 16
"""Tiles the pages of a short step are shared out to, for each key/value head."""
MINUS_INFINITY = -float("inf")

(A_Q, A_Q_STRIDE, A_K, A_V, A_Y, A_Y_STRIDE, A_HEADS, A_KV_HEADS, A_DIM, A_SCALE, A_PARTIAL) = range(11)
(W_SOURCE, W_STRIDE, W_TARGET, W_KV_HEADS, W_DIM) = range(5)
(C_PARTIAL, C_Y, C_Y_STRIDE, C_HEADS, C_KV_HEADS, C_DIM) = range(6)

SCRATCH = 64


def padded(dim: int) -> int:
    """The head dimension rounded up to whole vectors."""
    return (dim + 15) // 16 * 16


def scratch_bytes(heads: int, kv_heads: int, dim: int) -> int:
    """Bytes of scratch each thread needs: scaled queries, scores of a page, outputs, maxima and sums."""
    queries = SMALL_ROWS * (heads // kv_heads)
    return SCRATCH + 4 * queries * (dim + PAGE_TOKENS + padded(dim) + 2) + 256


def partial_bytes(heads: int, kv_heads: int, dim: int) -> int:
    """Bytes of the shared partial results: for each split and head group, 8 rows of (maximum, sum, output)."""
    return SPLITS * kv_heads * SMALL_ROWS * (heads // kv_heads) * 4 * (2 + padded(dim))


def _emit_max(b: ir.IRBuilder, row: Any, vectors: Any) -> Any:
    top = Accumulators(b, 1)
    b.store(const_vector(MINUS_INFINITY), top.slots[0])
    with counted_loop(b, vectors) as i:
        value = load(b, b.add(row, b.mul(i, ir.Constant(I64, 64))), VF32)
        top.set(0, b.select(b.fcmp_ordered(">", value, top.get(0)), value, top.get(0)))
    return reduce(b, top.get(0), lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


def _emit_exp(b: ir.IRBuilder, row: Any, vectors: Any, maximum: Any) -> Any:
    total, top = Accumulators(b, 1), splat(b, maximum)
    total.clear()
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        value = exp_vector(b, b.fsub(load(b, address, VF32), top))
        store(b, value, address)
        total.set(0, b.fadd(total.get(0), value))
    return reduce(b, total.get(0), b.fadd)


def _emit_scale(b: ir.IRBuilder, row: Any, vectors: Any, factor: Any) -> None:
    times = splat(b, factor)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, b.fmul(load(b, address, VF32), times), address)


def _emit_clear(b: ir.IRBuilder, row: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        store(b, const_vector(0.0), b.add(row, b.mul(i, ir.Constant(I64, 64))))


def _emit_exp_scalar(b: ir.IRBuilder, x: Any) -> Any:
    return b.extract_element(exp_vector(b, splat(b, x)), ir.Constant(ir.IntType(32), 0))


row_max = intrinsic_function("row_max", types.float32, (types.int64, types.int64), _emit_max)
row_exp = intrinsic_function("row_exp", types.float32, (types.int64, types.int64, types.float32), _emit_exp)
row_scale = intrinsic_function("row_scale", types.void, (types.int64, types.int64, types.float32), _emit_scale)
row_clear = intrinsic_function("row_clear", types.void, (types.int64, types.int64), _emit_clear)
exp_scalar = intrinsic_function("exp_scalar", types.float32, (types.float32,), _emit_exp_scalar)

# Filled in for each store type by `attention_kernels`.
wide_many: Any = None
wide_few: Any = None
wide_one: Any = None
thin_many: Any = None
thin_few: Any = None
thin_one: Any = None
put: Any = None
products: Any = None
begin: Any = None
weigh: Any = None
keep_partial: Any = None
write_out: Any = None
SIZE = 0
MANY, FEW = ATTENTION_ROW_STEPS[:2]
VECTORS = ATTENTION_VECTORS


def _store_keys_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(ld_i64(step + 8 * PAGES) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * W_KV_HEADS), ld_i64(args + 8 * W_DIM), position % PAGE_TOKENS
    source = ld_i64(args + 8 * W_SOURCE) + tile * ld_i64(args + 8 * W_STRIDE)
    for g in range(groups):
        target = ld_i64(args + 8 * W_TARGET) + SIZE * (((page * groups + g) * 16 + slot // 16) * dim * 16 + slot % 16)
        for d in range(dim):
            put(target + SIZE * 16 * d, ld_f32(source + 4 * (g * dim + d)))


def _store_values_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(ld_i64(step + 8 * PAGES) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * W_KV_HEADS), ld_i64(args + 8 * W_DIM), position % PAGE_TOKENS
    width = (dim + 15) // 16 * 16
    source = ld_i64(args + 8 * W_SOURCE) + tile * ld_i64(args + 8 * W_STRIDE)
    for g in range(groups):
        target = ld_i64(args + 8 * W_TARGET) + SIZE * ((page * groups + g) * PAGE_TOKENS + slot) * width
        for d in range(dim):
            put(target + SIZE * d, ld_f32(source + 4 * (g * dim + d)))


def _attention_template(args: int, step: int, tile: int, scratch: int) -> None:
    rows, groups, dim = ld_i64(step + 8 * ROWS), ld_i64(args + 8 * A_KV_HEADS), ld_i64(args + 8 * A_DIM)
    short = rows <= SMALL_ROWS
    g, part = tile % groups, tile // groups
    first_row = 0 if short else part * SMALL_ROWS
    here = min(SMALL_ROWS, rows - first_row)
    ratio, width = ld_i64(args + 8 * A_HEADS) // groups, (dim + 15) // 16 * 16
    queries = here * ratio
    q = scratch + SCRATCH
    scores = q + 4 * SMALL_ROWS * ratio * dim
    out = scores + 4 * SMALL_ROWS * ratio * PAGE_TOKENS
    state = out + 4 * SMALL_ROWS * ratio * width
    positions = ld_i64(step + 8 * POSITIONS) + 4 * first_row
    begin(args, g, first_row, queries, q, out, state)
    last = ld_i32(positions + 4 * (here - 1))
    for j in range(part if short else 0, last // PAGE_TOKENS + 1, SPLITS if short else 1):
        page = ld_i32(ld_i64(step + 8 * PAGES) + 4 * j)
        start = j * PAGE_TOKENS
        filled = min(PAGE_TOKENS, last - start + 1)
        vectors = (filled + 15) // 16
        keys = ld_i64(args + 8 * A_K) + SIZE * (page * groups + g) * PAGE_TOKENS * dim
        for i in range(queries):
            row_clear(scores + 4 * PAGE_TOKENS * i, vectors)
        products(keys, SIZE * 16, SIZE * 16 * dim, vectors, q, 4 * dim, queries, dim, scores, 4 * PAGE_TOKENS)
        for i in range(queries):
            valid = ld_i32(positions + 4 * (i // ratio)) - start + 1
            weigh(scores + 4 * PAGE_TOKENS * i, vectors, valid, state + 8 * i, out + 4 * width * i, width // 16)
        values = ld_i64(args + 8 * A_V) + SIZE * (page * groups + g) * PAGE_TOKENS * width
        products(values, SIZE * width, SIZE * 16, width // 16, scores, 4 * PAGE_TOKENS, queries, filled, out, 4 * width)
    if short:
        target = ld_i64(args + 8 * A_PARTIAL) + 4 * (2 + width) * SMALL_ROWS * ratio * (part * groups + g)
        keep_partial(queries, width, state, out, target)
    else:
        write_out(args, g, first_row, queries, state, out)


def _begin(args: int, g: int, first_row: int, queries: int, q: int, out: int, state: int) -> None:
    """Scaled queries of the head group into scratch; outputs zero, maxima minus infinity, sums zero."""
    groups, dim, scale = ld_i64(args + 8 * A_KV_HEADS), ld_i64(args + 8 * A_DIM), ld_f64(args + 8 * A_SCALE)
    ratio, width = ld_i64(args + 8 * A_HEADS) // groups, (dim + 15) // 16 * 16
    for i in range(queries):
        source = ld_i64(args + 8 * A_Q) + (first_row + i // ratio) * ld_i64(args + 8 * A_Q_STRIDE) + 4 * dim * (g * ratio + i % ratio)
        for d in range(dim):
            st_f32(q + 4 * (i * dim + d), ld_f32(source + 4 * d) * scale)
        row_clear(out + 4 * i * width, width // 16)
        st_f32(state + 8 * i, MINUS_INFINITY)
        st_f32(state + 8 * i + 4, 0.0)


def _weigh(row: int, vectors: int, valid: int, state: int, out: int, out_vectors: int) -> None:
    """Scores of one page to weights relative to the running maximum; earlier sums and outputs follow a new maximum."""
    if valid <= 0:
        row_clear(row, vectors)
        return
    for p in range(valid, vectors * 16):
        st_f32(row + 4 * p, MINUS_INFINITY)
    before = ld_f32(state)
    top = max(before, row_max(row, vectors))
    total = row_exp(row, vectors, top)
    factor = exp_scalar(before - top)
    st_f32(state, top)
    st_f32(state + 4, ld_f32(state + 4) * factor + total)
    row_scale(out, out_vectors, factor)


def _keep_partial(queries: int, width: int, state: int, out: int, target: int) -> None:
    """Maximum, sum and unnormalised output of each query, for `combine`."""
    for i in range(queries):
        st_f32(target, ld_f32(state + 8 * i))
        st_f32(target + 4, ld_f32(state + 8 * i + 4))
        for d in range(width):
            st_f32(target + 8 + 4 * d, ld_f32(out + 4 * (i * width + d)))
        target += 4 * (2 + width)


def _write_out(args: int, g: int, first_row: int, queries: int, state: int, out: int) -> None:
    """Normalised outputs into y."""
    groups, dim = ld_i64(args + 8 * A_KV_HEADS), ld_i64(args + 8 * A_DIM)
    ratio, width = ld_i64(args + 8 * A_HEADS) // groups, (dim + 15) // 16 * 16
    for i in range(queries):
        target = ld_i64(args + 8 * A_Y) + (first_row + i // ratio) * ld_i64(args + 8 * A_Y_STRIDE) + 4 * dim * (g * ratio + i % ratio)
        total = ld_f32(state + 8 * i + 4)
        for d in range(dim):
            st_f32(target + 4 * d, ld_f32(out + 4 * (i * width + d)) / total)


def _products_template(
    w: int, w_stride: int, vector_stride: int, vectors: int, x: int, x_stride: int, rows: int, count: int, out: int, out_stride: int
) -> None:
    """out (rows, vectors * 16) += x (rows, count) times w, in register tiles."""
    m = 0
    while m < vectors:
        wide = vectors - m >= VECTORS
        column, target = w + m * vector_stride, out + 64 * m
        r = 0
        while r < rows:
            xr, yr = x + r * x_stride, target + r * out_stride
            if rows - r >= MANY:
                if wide:
                    wide_many(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                else:
                    thin_many(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                r += MANY
            elif rows - r >= FEW:
                if wide:
                    wide_few(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                else:
                    thin_few(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                r += FEW
            else:
                if wide:
                    wide_one(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                else:
                    thin_one(column, w_stride, vector_stride, xr, x_stride, count, yr, out_stride)
                r += 1
        m += VECTORS if wide else 1


def combine(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile a head: join the splits of a short step. out = sum of e^(m_s - M) out_s / sum of e^(m_s - M) l_s."""
    rows, groups, dim = ld_i64(step + 8 * ROWS), ld_i64(args + 8 * C_KV_HEADS), ld_i64(args + 8 * C_DIM)
    ratio, width = ld_i64(args + 8 * C_HEADS) // groups, (dim + 15) // 16 * 16
    g, h = tile // ratio, tile % ratio
    size = 4 * (2 + width)
    splits = min(SPLITS, ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * (rows - 1)) // PAGE_TOKENS + 1)
    for r in range(rows):
        first = ld_i64(args + 8 * C_PARTIAL) + size * (SMALL_ROWS * ratio * g + r * ratio + h)
        jump = size * SMALL_ROWS * ratio * groups
        y = ld_i64(args + 8 * C_Y) + r * ld_i64(args + 8 * C_Y_STRIDE) + 4 * dim * tile
        top = ld_f32(first)
        for s in range(1, splits):
            top = max(top, ld_f32(first + s * jump))
        total = 0.0
        for d in range(dim):
            st_f32(y + 4 * d, 0.0)
        for s in range(splits):
            factor = exp_scalar(ld_f32(first + s * jump) - top)
            total += factor * ld_f32(first + s * jump + 4)
            for d in range(dim):
                st_f32(y + 4 * d, ld_f32(y + 4 * d) + factor * ld_f32(first + s * jump + 8 + 4 * d))
        for d in range(dim):
            st_f32(y + 4 * d, ld_f32(y + 4 * d) / total)


def attention_kernels(dtype: str, jit: Jit) -> dict[str, Any]:
    """store_keys, store_values and attention for "fp16" or "fp32"; `jit(function, signature)` compiles their parts."""
    half = dtype == "fp16"
    many, few, one = ((register_tile(ATTENTION_VECTORS, n, half), register_tile(1, n, half)) for n in ATTENTION_ROW_STEPS)
    products_part = specialise(
        _products_template,
        f"products_{dtype}",
        wide_many=many[0], thin_many=many[1], wide_few=few[0], thin_few=few[1], wide_one=one[0], thin_one=one[1],
    )  # fmt: skip
    parts = {
        "products": jit(products_part, words(10)),
        "begin": jit(_begin, words(7)),
        "weigh": jit(_weigh, words(6)),
        "keep_partial": jit(_keep_partial, words(5)),
        "write_out": jit(_write_out, words(6)),
    }
    values = {"SIZE": 2 if half else 4, "put": st_f16 if half else st_f32}
    return {
        f"store_keys_{dtype}": specialise(_store_keys_template, f"store_keys_{dtype}", **values),
        f"store_values_{dtype}": specialise(_store_values_template, f"store_values_{dtype}", **values),
        f"attention_{dtype}": specialise(_attention_template, f"attention_{dtype}", **parts, **values),
    }
