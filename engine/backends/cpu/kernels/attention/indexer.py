"""The choice of the positions that attention looks at: see `IndexerShape`.

A tile is a row. It scores the keys page by page, as attention does, and keeps the best blocks so far in a
heap for each list, the worst of them first; at the end it sorts them by position. Scores need no scale, since
their order alone counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, ld_i64, st_f32, st_i32, st_i64
from engine.backends.cpu.codegen.simd import (
    I64,
    VF32,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.attention import padded
from engine.backends.cpu.kernels.attention.combine import SCRATCH
from engine.backends.cpu.kernels.attention.products import attention_products
from engine.backends.cpu.kernels.attention.softmax import MINUS_INFINITY, row_clear, row_times
from engine.backends.cpu.kernels.kv_write.tiles import hadamard
from engine.backends.cpu.kernels.runs import block_table_function
from engine.backends.cpu.runtime.step_block import POSITIONS
from engine.backends.indexer import UNUSED, IndexerShape
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType
from engine.core import PAGE_TOKENS

(I_Q, I_Q_STRIDE, I_KEYS, I_KEY_PAGE, I_WEIGHTS, I_WEIGHTS_STRIDE, I_Y, I_Y_STRIDE, I_HEADS, I_DIM,
 I_Q_WIDTH, I_COUNT, I_BLOCK, I_POOLED, I_LOCAL, I_WIDTH, I_LISTS, I_EACH, I_ENDS) = range(19)  # fmt: skip
"""Queries, keys and bytes of a page of them, weights (0: all 1), lists; strides in bytes. The
numbers of `IndexerShape`; numbers of a query in scratch memory.
"""
HEAD = 16
"""Bytes before a heap: its blocks so far, and the best score of the block that is not complete."""
ONE, LOWEST, HIGHEST = np.float32(1), np.float32(MINUS_INFINITY), np.float32(-MINUS_INFINITY)

# Filled in for each format by `indexer_kernel`.
block_table: Any = None
scores_of: Any = None
before: Any = None
sift: Any = None
offer: Any = None
offer_page: Any = None
write_list: Any = None
HADAMARD = False


def scratch_bytes(shape: IndexerShape) -> int:
    """Scratch bytes of a thread: queries, a page's scores and their sums, heaps."""
    queries = shape.heads * (padded(shape.head_dim, GROUP) + PAGE_TOKENS) + PAGE_TOKENS
    return SCRATCH + 4 * queries + shape.lists * (HEAD + 8 * shape.count)


def _emit_add_positive(b: ir.IRBuilder, total: Any, x: Any, vectors: Any, factor: Any) -> None:
    times, zero = splat(b, factor), const_vector(0.0)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        value, place = load(b, b.add(x, offset), VF32), b.add(total, offset)
        value = b.select(b.fcmp_ordered(">", value, zero), value, zero)
        store(b, fma(b, times, value, load(b, place, VF32)), place)


add_positive = intrinsic_function(
    "add_positive", types.void, (*(types.int64,) * 3, types.float32), _emit_add_positive
)
"""add_positive(total, x, vectors, factor): total += factor * relu(x)."""


def _before(heap: int, a: int, b: int, by_place: int) -> bool:
    """Whether entry `a` of a heap, a score and a block, comes before `b`: as the worse one, or as the later
    one.
    """
    if by_place:
        return bool(ld_i32(heap + 8 * a + 4) > ld_i32(heap + 8 * b + 4))
    x, y = ld_f32(heap + 8 * a), ld_f32(heap + 8 * b)
    return bool(x < y or (x == y and ld_i32(heap + 8 * a + 4) > ld_i32(heap + 8 * b + 4)))


def _sift_template(heap: int, at: int, count: int, by_place: int) -> None:
    """Move entry `at` of a heap of `count` down to its place."""
    while True:
        child = 2 * at + 1
        if child >= count:
            return
        if child + 1 < count and before(heap, child + 1, child, by_place):
            child += 1
        if not before(heap, child, at, by_place):
            return
        moved = ld_i64(heap + 8 * at)
        st_i64(heap + 8 * at, ld_i64(heap + 8 * child))
        st_i64(heap + 8 * child, moved)
        at = child


def _offer_template(head: int, most: int, score: np.float32, block: int) -> None:
    """Keep a block if it is among the `most` best so far; blocks come in rising order."""
    heap, count = head + HEAD, ld_i64(head)
    if count < most:
        st_f32(heap + 8 * count, score)
        st_i32(heap + 8 * count + 4, block)
        st_i64(head, count + 1)
        if count + 1 == most:
            for at in range(most // 2 - 1, -1, -1):
                sift(heap, at, most, 0)
    elif score > ld_f32(heap):
        st_f32(heap, score)
        st_i32(heap + 4, block)
        sift(heap, 0, most, 0)


def _offer_page_template(args: int, head: int, row: int, start: int, filled: int, own: int) -> None:
    """Offer the blocks of a page, from position `start` on, that a query at `own` sees."""
    block, most, local = ld_i64(args + 8 * I_BLOCK), ld_i64(args + 8 * I_COUNT), ld_i64(args + 8 * I_LOCAL)
    pooled, best = ld_i64(args + 8 * I_POOLED), ld_f32(head + 8)
    number, left = start // block, block - start % block
    for i in range(filled):
        score = ld_f32(row + 4 * i)
        best, left = score if pooled else max(best, score), left - 1
        if left == 0 or (start + i == own and not pooled):
            offer(head, most, HIGHEST if own // block - number < local else best, number)
            best, number, left = LOWEST, number + 1, block
    st_f32(head + 8, best)


def _write_list_template(args: int, head: int, own: int, y: int) -> None:
    """The positions of a heap's blocks, and of those after the last whole block, as a list; or the last
    position of each block.
    """
    heap, count, block = head + HEAD, ld_i64(head), ld_i64(args + 8 * I_BLOCK)
    for at in range(count // 2 - 1, -1, -1):
        sift(heap, at, count, 1)
    for end in range(count - 1, 0, -1):
        moved = ld_i64(heap)
        st_i64(heap, ld_i64(heap + 8 * end))
        st_i64(heap + 8 * end, moved)
        sift(heap, 0, end, 1)
    last, ends = y + 4 * ld_i64(args + 8 * I_WIDTH), ld_i64(args + 8 * I_ENDS)
    for n in range(count):
        first = ld_i32(heap + 8 * n + 4) * block
        for place in range(first + block - 1 if ends else first, min(first + block, own + 1)):
            st_i32(y, place)
            y += 4
    if ld_i64(args + 8 * I_POOLED) and not ends:
        for place in range((own + 1) // block * block, own + 1):
            st_i32(y, place)
            y += 4
    while y < last:
        st_i32(y, UNUSED)
        y += 4


def _indexer_template(args: int, step: int, tile: int, scratch: int) -> None:
    own, pages = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile), block_table(step, tile)
    heads, dim, q_width = ld_i64(args + 8 * I_HEADS), ld_i64(args + 8 * I_DIM), ld_i64(args + 8 * I_Q_WIDTH)
    source = ld_i64(args + 8 * I_Q) + tile * ld_i64(args + 8 * I_Q_STRIDE)
    lists, most, width = ld_i64(args + 8 * I_LISTS), ld_i64(args + 8 * I_COUNT), ld_i64(args + 8 * I_WIDTH)
    weights = ld_i64(args + 8 * I_WEIGHTS) + tile * ld_i64(args + 8 * I_WEIGHTS_STRIDE)
    q = scratch + SCRATCH
    scores = q + 4 * heads * q_width
    sums = scores + 4 * heads * PAGE_TOKENS
    heaps, size = sums + 4 * PAGE_TOKENS, HEAD + 8 * most
    for h in range(heads):
        row_times(source + 4 * h * dim, dim, ONE, q + 4 * h * q_width)
        for d in range(dim, q_width):
            st_f32(q + 4 * (h * q_width + d), 0.0)
    if HADAMARD:
        hadamard(q, heads * (q_width // GROUP))
    for g in range(lists):
        st_i64(heaps + g * size, 0)
        st_f32(heaps + g * size + 8, LOWEST)
    for j in range(own // PAGE_TOKENS + 1):
        page = ld_i64(args + 8 * I_KEYS) + ld_i32(pages + 4 * j) * ld_i64(args + 8 * I_KEY_PAGE)
        filled = min(PAGE_TOKENS, own - j * PAGE_TOKENS + 1)
        vectors = (filled + 15) // 16
        scores_of(page, j, vectors, q, q_width, heads, dim, scores, page, 0)
        if not ld_i64(args + 8 * I_EACH):
            row_clear(sums, vectors)
            for h in range(heads):
                factor = ld_f32(weights + 4 * h) if weights else ONE
                add_positive(sums, scores + 4 * PAGE_TOKENS * h, vectors, factor)
            offer_page(args, heaps, sums, j * PAGE_TOKENS, filled, own)
        else:
            for g in range(lists):
                row = scores + 4 * PAGE_TOKENS * g
                offer_page(args, heaps + g * size, row, j * PAGE_TOKENS, filled, own)
    y = ld_i64(args + 8 * I_Y) + tile * ld_i64(args + 8 * I_Y_STRIDE)
    for g in range(lists):
        write_list(args, heaps + g * size, own, y + 4 * g * width)


def indexer_kernel(keys: str, jit: Jit) -> Any:
    """The kernel for keys of the cache format `keys`; `jit(function, signature)` compiles its parts."""
    int64, float32 = types.int64, types.float32
    order = {"before": jit(_before, types.boolean(*(int64,) * 4))}
    moved = {"sift": jit(specialise(_sift_template, "sift", **order), words(4))}
    offered = specialise(_offer_template, "offer", **moved)
    offer = {"offer": jit(offered, types.void(int64, int64, float32, int64))}
    parts = {
        "scores_of": attention_products(CacheType(keys, "fp32"), jit)["scores_of"],
        "offer_page": jit(specialise(_offer_page_template, "offer_page", **offer), words(6)),
        "write_list": jit(specialise(_write_list_template, "write_list", **moved), words(4)),
        **block_table_function(jit),
    }
    return specialise(_indexer_template, f"indexer_{keys}", HADAMARD=keys in QUANTISED, **parts)
