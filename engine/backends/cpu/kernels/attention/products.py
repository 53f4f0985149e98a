"""The two products of attention, queries times a page's keys and weights times its values, by cache format.

`attention.py` describes the layouts. Scores and weights are scratch rows of 256 float32 for each query. The
first product overwrites scores, the second adds to outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, st_f32
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.softmax import row_add, row_clear, row_dot, row_fill
from engine.backends.cpu.kernels.attention.tiles import (
    LINE,
    READERS,
    REGION,
    ROW_STEPS,
    STRIP_FROM,
    STRIP_ROWS,
    THIN_STEPS,
    VECTORS,
    plain_tile,
    rows_at_once,
    unpack_strip,
)
from engine.backends.cpu.kernels.kv_write.tiles import CODE_BYTES, key_tile, times_scales, value_tile
from engine.backends.kv_formats import GROUP, QUANTISED, WHOLE_KEYS, CacheType
from engine.core import PAGE_TOKENS

# Filled in for each format below: tiles by vectors and queries, and how many queries the next tile takes.
wide_6: Any = None
wide_4: Any = None
wide_3: Any = None
wide_2: Any = None
wide_1: Any = None
thin_3: Any = None
thin_1: Any = None
at_once: Any = None
tile_count: Any = None
products: Any = None
strips: Any = None
unpack: Any = None
first_6: Any = None
added_6: Any = None
SIZE = CODES = 0
KEEPS = STRIPS = False
ZERO = np.float32(0)


# --- products with plain numbers ----------------------------------------------------------------------------


def _plain_scores_template(
    keys: int, j: int, vectors: int, q: int, q_width: int, queries: int, dim: int, out: int,
    ahead: int, room: int,
) -> None:  # fmt: skip
    """out (queries, 256) = q (queries, dim) times the keys of a sequence's page j; prefetches `ahead`. Many
    queries use `room` (0: there is none) for `_strips_template`.
    """
    products(
        keys, SIZE * 16, SIZE * 16 * dim, vectors, q, 4 * q_width, queries, dim, out, 4 * PAGE_TOKENS, ahead,
        room,
    )  # fmt: skip


def _plain_mix_template(
    values: int, j: int, filled: int, weights: int, queries: int, width: int, spare: int, out: int,
    ahead: int, room: int,
) -> None:  # fmt: skip
    """out (queries, width) += weights (queries, 256) times the values of a sequence's page j."""
    products(
        values,
        SIZE * width,
        SIZE * 16,
        width // 16,
        weights,
        4 * PAGE_TOKENS,
        queries,
        filled,
        out,
        4 * width,
        ahead,
        room,
    )


def _tile_count_template(rows: int, wide: int) -> int:
    """How many tiles take `rows` queries."""
    count = 0
    while rows > 0:
        if wide:
            rows -= at_once(rows)
        else:
            rows -= 3 if rows >= 3 else 1
        count += 1
    return count


def _products_template(
    w: int, w_stride: int, apart: int, vectors: int, x: int, x_stride: int, rows: int, count: int,
    out: int, out_stride: int, ahead: int, room: int,
) -> None:  # fmt: skip
    """out (rows, vectors * 16) = or += x (rows, count) times w, in register tiles.

    Vector m of w's row k is at w + k w_stride + m `apart`; rows of x and out are x_stride and out_stride
    bytes apart. Prefetches as many bytes as w has from `ahead` on. Many rows have `strips` use `room`, if
    there is one.
    """
    size, done, m = 16 * SIZE * count * vectors, 0, 0
    end, regions = ahead + size, max(1, size // REGION)
    while m < vectors:
        wide = vectors - m >= VECTORS
        column, target = w + m * apart, out + 64 * m
        r, step = 0, SIZE * 16 * (VECTORS if wide else 1)
        if STRIPS and room and wide and rows >= STRIP_FROM:
            r = rows // 6 * 6
            strips(column, w_stride, apart, x, x_stride, r, count, target, out_stride, ahead, done, end, room)
        # Each tile prefetches its share: if the first did all, it alone would wait for memory.
        unit, asked = max(LINE, step // max(1, tile_count(rows - r, wide)) // LINE * LINE), done
        while r < rows:
            xr, yr = x + r * x_stride, target + r * out_stride
            soon = ahead + asked % size // (unit * regions) * unit
            if wide:
                n = at_once(rows - r)
                if n == 6:
                    wide_6(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                elif n == 4:
                    wide_4(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                elif n == 3:
                    wide_3(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                elif n == 2:
                    wide_2(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                else:
                    wide_1(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                r += n
            elif rows - r >= 3:
                thin_3(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                r += 3
            else:
                thin_1(column, w_stride, apart, xr, x_stride, count, yr, out_stride, soon, end, unit)
                r += 1
            asked += count * unit
        done += count * step
        m += VECTORS if wide else 1


def _strips_template(
    w: int, w_stride: int, vector_stride: int, x: int, x_stride: int, rows: int, count: int, out: int,
    out_stride: int, ahead: int, done: int, end: int, room: int,
) -> None:  # fmt: skip
    """As `_products_template`, for `VECTORS` vectors and a multiple of 6 rows: in `room` w becomes float32
    once for all of them, strip by strip. Each sum is of the same products in the same order. `done`
    of the bytes from `ahead` to `end` were prefetched before.
    """
    unit = max(LINE, SIZE * 16 * VECTORS)
    turn = unit * max(1, (end - ahead) // REGION)
    for k in range(0, count, STRIP_ROWS):
        length = min(STRIP_ROWS, count - k)
        soon = ahead + (done + k * SIZE * 16 * VECTORS) // turn * unit
        unpack(w + k * w_stride, w_stride, vector_stride, length, room, soon, end)
        for r in range(0, rows, 6):
            xr, yr = x + r * x_stride + 4 * k, out + r * out_stride
            if k:
                added_6(room, 64 * VECTORS, 64, xr, x_stride, length, yr, out_stride, 0, 0, 0)
            else:
                first_6(room, 64 * VECTORS, 64, xr, x_stride, length, yr, out_stride, 0, 0, 0)


# --- products with codes ------------------------------------------------------------------------------------


def _hadamard_scores_template(
    keys: int, j: int, vectors: int, q: int, q_width: int, queries: int, dim: int, out: int,
    ahead: int, room: int,
) -> None:  # fmt: skip
    """As `_plain_scores_template`, with transformed queries and codes, group by group."""
    groups, size, stride, out_stride = q_width // GROUP, 16 * (CODES + 2), 4 * q_width, 4 * PAGE_TOKENS
    head = keys
    # Scores start at the query times the keys' mean; at 0 for the first 16 positions, which have no mean.
    whole = vectors
    if KEEPS:
        whole = WHOLE_KEYS // 16 if j == 0 else 0
    for i in range(queries):
        row_clear(out + out_stride * i, whole)
        if KEEPS and vectors > whole:
            row_fill(
                out + out_stride * i + 64 * whole,
                vectors - whole,
                row_dot(q + stride * i, head, q_width // 16),
            )
    if KEEPS:
        keys += (8 * q_width + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
    m = 0
    while m < vectors:
        wide = vectors - m >= VECTORS
        for g in range(groups):
            column = keys + (m * groups + g) * size
            r = 0
            while r < queries:
                x, y = q + r * stride + 4 * GROUP * g, out + r * out_stride + 64 * m
                if wide:
                    n = at_once(queries - r)
                    if n == 6:
                        wide_6(column, groups * size, x, stride, y, out_stride, ahead)
                    elif n == 4:
                        wide_4(column, groups * size, x, stride, y, out_stride, ahead)
                    elif n == 3:
                        wide_3(column, groups * size, x, stride, y, out_stride, ahead)
                    elif n == 2:
                        wide_2(column, groups * size, x, stride, y, out_stride, ahead)
                    else:
                        wide_1(column, groups * size, x, stride, y, out_stride, ahead)
                    r += n
                elif queries - r >= 3:
                    thin_3(column, groups * size, x, stride, y, out_stride, ahead)
                    r += 3
                else:
                    thin_1(column, groups * size, x, stride, y, out_stride, ahead)
                    r += 1
            ahead += size * (VECTORS if wide else 1)
        m += VECTORS if wide else 1
    if KEEPS and j == 0:
        for i in range(queries):
            st_f32(out + out_stride * i, row_dot(q + stride * i, head + stride, q_width // 16))


def _hadamard_mix_template(
    values: int, j: int, filled: int, weights: int, queries: int, width: int, spare: int, out: int,
    ahead: int, room: int,
) -> None:  # fmt: skip
    """As `_plain_mix_template`, with codes: weights times their positions' scales go to `spare` first."""
    stride = 4 * PAGE_TOKENS
    if KEEPS:
        if j == 0:
            for i in range(queries):
                row_add(out + 4 * width * i, values, width // 16, ld_f32(weights + stride * i))
        values += (4 * width + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
    for g in range(width // GROUP):
        scales = values + g * PAGE_TOKENS * (2 + CODES)
        codes, target = scales + 2 * PAGE_TOKENS, out + 4 * GROUP * g
        for i in range(queries):
            times_scales(weights + stride * i, scales, (filled + 15) // 16, spare + stride * i)
            if filled % 2:
                st_f32(spare + stride * i + 4 * filled, ZERO)
            if KEEPS and j == 0:
                st_f32(spare + stride * i, ZERO)
        r = 0
        while r < queries:
            x, y = spare + r * stride, target + 4 * width * r
            n = at_once(queries - r)
            if n == 6:
                wide_6(codes, filled, x, stride, y, 4 * width, ahead)
            elif n == 4:
                wide_4(codes, filled, x, stride, y, 4 * width, ahead)
            elif n == 3:
                wide_3(codes, filled, x, stride, y, 4 * width, ahead)
            elif n == 2:
                wide_2(codes, filled, x, stride, y, 4 * width, ahead)
            else:
                wide_1(codes, filled, x, stride, y, 4 * width, ahead)
            r += n
        ahead += PAGE_TOKENS * (2 + CODES)


def _tiles(wide: Callable[[int], Any], thin: Callable[[int], Any] | None = None) -> dict[str, Any]:
    """Tiles by name. The tile for one query stands in for sizes that do not exist and are never used."""
    made = {f"wide_{n}": wide(n) for n in ROW_STEPS}
    if thin is not None:
        made |= {f"thin_{n}": thin(n) for n in THIN_STEPS}
    return {f"wide_{n}": made["wide_1"] for n in (6, 4, 3, 2)} | made


def attention_products(kind: CacheType, jit: Jit) -> dict[str, Any]:
    """`scores_of` and `mix` for a cache type; `jit(function, signature)` compiles them."""
    at_once = {"at_once": jit(rows_at_once, types.int64(types.int64))}
    keys, values = kind.keys, kind.values
    if keys in QUANTISED:
        tiles = _tiles(lambda n: key_tile(keys, VECTORS, n), lambda n: key_tile(keys, 1, n))
        scores = specialise(
            _hadamard_scores_template,
            f"scores_{keys}",
            CODES=CODE_BYTES[keys],
            KEEPS=keys == "q4",
            **tiles,
            **at_once,
        )
    else:
        made = _plain_products(keys, True, jit)
        scores = specialise(_plain_scores_template, f"scores_{keys}", products=made, SIZE=READERS[keys][0])
    if values in QUANTISED:
        tiles = _tiles(lambda n: value_tile(values, n))
        mix = specialise(
            _hadamard_mix_template,
            f"mix_{values}",
            CODES=CODE_BYTES[values],
            KEEPS=values == "q4",
            **tiles,
            **at_once,
        )
    else:
        made = _plain_products(values, False, jit)
        mix = specialise(_plain_mix_template, f"mix_{values}", products=made, SIZE=READERS[values][0])
    return {"scores_of": jit(scores, words(10)), "mix": jit(mix, words(10))}


def _plain_products(name: str, fresh: bool, jit: Jit) -> Any:
    label, size, strips = f"{name}_{'scores' if fresh else 'mix'}", READERS[name][0], None
    if size < 4:
        first, added = (plain_tile(VECTORS, 6, "fp32", kind, asks=False) for kind in (fresh, False))
        strips = specialise(
            _strips_template, f"strips_{label}", unpack=unpack_strip(name), first_6=first, added_6=added,
            SIZE=size,
        )  # fmt: skip
    return products_of_tiles(
        lambda vectors, n: plain_tile(vectors, n, name, fresh), f"products_{label}", size, jit,
        strips=strips and jit(strips, words(13)),
    )  # fmt: skip


def products_of_tiles(
    tile: Callable[[int, int], Any],
    label: str,
    size: int,
    jit: Jit,
    taken: Callable[[int], int] = rows_at_once,
    strips: Any = None,
) -> Any:
    """`_products_template` named `label`, of tiles by vectors and queries, which takes this many at once of
    those that are left; one number is of `size` bytes. Many queries take `strips` of `_strips_template`.
    """
    tiles = _tiles(lambda n: tile(VECTORS, n), lambda n: tile(1, n))
    at_once = jit(taken, types.int64(types.int64))
    counts = specialise(_tile_count_template, f"tile_count_{label}", at_once=at_once)
    made = specialise(
        _products_template, label, SIZE=size, **tiles, at_once=at_once, STRIPS=strips is not None,
        strips=strips or at_once, tile_count=jit(counts, types.int64(types.int64, types.int64)),
    )  # fmt: skip
    return jit(made, words(12))
