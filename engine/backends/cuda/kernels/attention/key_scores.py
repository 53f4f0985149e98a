"""The scores that an indexer gives keys: see `IndexerShape`.

`_score_keys` multiplies a layer's keys with the queries of each row, in float32 and in every format of the
cache: a thread has two *candidates* and up to eight heads. A candidate is a position, or of pooled keys a
block's last one. Sums have one order, so rows have the same bits in every batch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    blocks_x,
    fma,
    ld_f32,
    ld_i32,
    lds_f32,
    lds_f32x4,
    maximum,
    registers,
    shared,
    st_f32,
    static,
    sts_f32,
    thread,
    unknown,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention.kv_read import element_fp32, reading
from engine.backends.cuda.kernels.attention.plain import no_transform
from engine.backends.cuda.kernels.common import hadamard, run_of
from engine.backends.cuda.kv_cache import KEYS, Layout
from engine.backends.indexer import IndexerShape
from engine.backends.kv_formats import QUANTISED

WARPS, THREADS = 8, 256
TILE, PIECE = 64, 64
"""Candidates and dimensions that a block has at hand."""

D, GROUPS, PIECES, EACH = 64, 2, 1, 1
"""Dimensions, their groups of 32, their pieces, and heads of a thread."""
STEP, LISTS = 1, 0
"""Positions of a candidate; whether each head has its own list."""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = 0
K_number: Any = element_fp32
Q_transform: Any = hadamard
QUERIES, SUMS, ROOM = 4 * TILE * (PIECE + 1), 0, 0
"""Offsets in shared memory: the queries and the warps' sums, after the keys."""


def _stage_keys(memory: int, keys: int, pages: int, table: int, first: int, count: int, piece: int) -> None:
    """Copy a piece of the keys of candidates from `first` on to shared memory."""
    lane, own = int32(thread() & 31), int32(thread() >> 5)
    while own < TILE:
        candidate = int32(min(int32(first + own), int32(count - 1)))
        place = int32(int32(candidate * STEP) + int32(STEP - 1))
        page = keys + int64(ld_i32(pages + 4 * int64(int32(table + int32(place >> 8))))) * K_BLOCK
        for i in static(range(2)):
            dim = int32(int32(PIECE * piece) + int32(lane + 32 * i))
            number = float32(0.0)
            if dim < K_LIMIT:
                number = K_number(page, place, dim, int32(K_ROW), int32(K_SCALES), int32(GROUPS))
            sts_f32(int32(memory + int32(4 * int32(int32(own * (PIECE + 1)) + int32(lane + 32 * i)))), number)
        own = int32(own + WARPS)


def _stage_queries(memory: int, q: int, first: int, heads: int, piece: int) -> None:
    """Copy a piece of the queries of heads from `first` on, transformed where keys are; zeros beyond them."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    for j in static(range(EACH)):
        own = int32(warp + WARPS * j)
        head = int32(first + own)
        for i in static(range(2)):
            dim = int32(int32(PIECE * piece) + int32(lane + 32 * i))
            number = float32(0.0)
            if dim < D and head < heads:
                number = ld_f32(q + 4 * int64(int32(int32(head * D) + dim)))
            number = Q_transform(number, lane)
            sts_f32(int32(memory + int32(4 * int32(int32(own * PIECE) + int32(lane + 32 * i)))), number)


def _multiply(products: Any, memory: int) -> None:
    """Add what a piece contributes to the products of this thread's two candidates and its heads."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    one = int32(memory + int32(4 * int32(lane * (PIECE + 1))))
    two = int32(one + 4 * 32 * (PIECE + 1))
    query = int32(int32(memory + QUERIES) + int32(4 * PIECE * warp))
    k = registers(float32(0.0), 8)
    dim = int32(0)
    while dim < PIECE:
        for i in static(range(4)):
            k[i], k[4 + i] = lds_f32(int32(one + 4 * i)), lds_f32(int32(two + 4 * i))
        for j in static(range(EACH)):
            a, b, c, d = lds_f32x4(int32(query + 4 * PIECE * WARPS * j))
            for i in static(range(2)):
                part = fma(b, k[4 * i + 1], fma(a, k[4 * i], products[2 * j + i]))
                products[2 * j + i] = fma(d, k[4 * i + 3], fma(c, k[4 * i + 2], part))
        one, two, query = int32(one + 16), int32(two + 16), int32(query + 16)
        dim = unknown(int32(dim + 4))


def _add_heads(sums: Any, products: Any, weights: int, first: int, heads: int) -> None:
    """Add weight relu(product) of this thread's heads."""
    warp = int32(thread() >> 5)
    for j in static(range(EACH)):
        head, weight = int32(int32(first + warp) + WARPS * j), float32(1.0)
        if weights != 0 and head < heads:
            weight = ld_f32(weights + 4 * int64(head))
        for i in static(range(2)):  # the products of heads past the last are 0
            sums[i] = fma(weight, maximum(products[2 * j + i], float32(0.0)), sums[i])


def _store_products(
    products: Any, scores: int, stride: int, tile: int, count: int, head: int, heads: int
) -> None:
    """Write the products of this thread's heads, which are those from `head` on."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    for j in static(range(EACH)):
        own = int32(int32(head + warp) + WARPS * j)
        for i in static(range(2)):
            candidate = int32(int32(tile + lane) + 32 * i)
            if own < heads and candidate < count:
                st_f32(scores + int64(own) * stride + 4 * int64(candidate), products[2 * j + i])


def _store_sums(sums: Any, memory: int, scores: int, tile: int, count: int) -> None:
    """Write the sums over all warps."""
    me = int32(thread())
    for i in static(range(2)):
        own = int32(int32(me & 31) + 32 * i)
        sts_f32(int32(memory + SUMS + int32(4 * int32(int32(me >> 5) * TILE + own))), sums[i])
    barrier()
    if me < TILE and int32(tile + me) < count:
        total = float32(0.0)
        for i in static(range(WARPS)):
            total = total + lds_f32(int32(int32(memory + SUMS + 4 * TILE * i) + int32(4 * me)))
        st_f32(scores + 4 * int64(int32(tile + me)), total)


def _score_keys(
    keys: int, q: int, q_stride: int, weights: int, weights_stride: int, scores: int, scores_stride: int,
    list_stride: int, positions: int, pages: int, runs: int, heads: int,
) -> None:  # fmt: skip
    """The scores of each row's candidates. Grid (tiles of candidates, row).

    keys: a layer of the cache; q (rows, H D), `weights` (rows, H) or 0: float32; output `scores`: float32
    (rows, lists, candidates), strides in bytes; `runs` as `Runtime.RUNS`.
    """
    wait_for_others()
    memory, row, table = int32(shared(ROOM)), int32(block_y()), int32(0)
    count = int32(int32(ld_i32(positions + 4 * int64(row)) + 1) // STEP)
    if runs != 0:
        _, _, table = run_of(runs, row)
    q = q + int64(row) * q_stride
    weights = weights + int64(row) * weights_stride if weights != 0 else weights
    scores = scores + int64(row) * scores_stride
    tile = int32(TILE * block_x())
    products = registers(float32(0.0), 2 * EACH)
    sums = registers(float32(0.0), 2)
    while tile < count:
        sums[0], sums[1] = float32(0.0), float32(0.0)
        head = int32(0)
        while head < heads:
            for i in static(range(2 * EACH)):
                products[i] = float32(0.0)
            piece = int32(0)
            while piece < PIECES:
                barrier()
                _stage_keys(memory, keys, pages, table, tile, count, piece)
                _stage_queries(int32(memory + QUERIES), q, head, heads, piece)
                barrier()
                _multiply(products, memory)
                piece = unknown(int32(piece + 1))
            if LISTS == 1:
                _store_products(products, scores, list_stride, tile, count, head, heads)
            else:
                _add_heads(sums, products, weights, head, heads)
            head = unknown(int32(head + WARPS * EACH))
        if LISTS == 0:
            _store_sums(sums, memory, scores, tile, count)
        tile = int32(tile + int32(TILE * blocks_x()))


@cache
def score_kernel(keys: str, shape: IndexerShape) -> Kernel:
    """The kernel `_score_keys` for keys of the cache format `keys`."""
    layout, each = Layout(KEYS, keys, shape.head_dim), min(8, -(-shape.heads // WARPS))
    step, sums = step_of(shape), QUERIES + 4 * PIECE * WARPS * each
    constants = {
        **reading(layout, "K_"), "D": shape.head_dim, "GROUPS": layout.groups, "EACH": each, "STEP": step,
        "PIECES": -(-32 * layout.groups // PIECE), "LISTS": int(shape.each), "QUERIES": QUERIES, "SUMS": sums,
        "Q_transform": hadamard if keys in QUANTISED else no_transform,
        "ROOM": sums if shape.each else sums + 4 * WARPS * TILE,
        "KEYS": keys, "TILE": TILE, "PIECE": PIECE, "WARPS": WARPS,
    }  # fmt: skip
    name = f"score_keys_{keys}_{shape.head_dim}_{each}{f'_every_{step}' * (step > 1)}{'_lists' * shape.each}"
    return Kernel(name, _score_keys, "l" * 11 + "i", THREADS, 128, constants, blocks=2)


def step_of(shape: IndexerShape) -> int:
    """Positions of a candidate."""
    return shape.block if shape.pooled else 1
