"""The two products of attention, queries with a page's keys and weights with its values, for each format of the cache.

Layouts are described in `attention.py`. Both take scratch rows of 256 scores or weights a query, and add to their result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cache_types import GROUP, QUANTISED, WHOLE_KEYS, CacheType
from engine.backends.cpu.attention_rows import row_add, row_dot, row_fill
from engine.backends.cpu.cache_tiles import CODE_BYTES, key_tile, times_scales, value_tile
from engine.backends.cpu.gemm import ATTENTION_ROW_STEPS, ATTENTION_VECTORS, register_tile
from engine.backends.cpu.linear import Jit, specialise, words
from engine.backends.cpu.simd import ld_f32, st_f32
from engine.core import PAGE_TOKENS

NUMBER_BYTES = {"fp32": 4, "fp16": 2, "fp8": 1}
"""Of the plain formats."""

# Filled in for each format below.
wide_many: Any = None
wide_few: Any = None
wide_one: Any = None
thin_many: Any = None
thin_few: Any = None
thin_one: Any = None
products: Any = None
SIZE = CODES = 0
KEEPS = False
ZERO = np.float32(0)
MANY, FEW = ATTENTION_ROW_STEPS[:2]
VECTORS = ATTENTION_VECTORS


# --- products with plain numbers -----------------------------------------------------------------------------------


def _plain_scores_template(keys: int, j: int, vectors: int, q: int, q_width: int, queries: int, dim: int, out: int) -> None:
    """out (queries, 256) += queries times the keys of a sequence's page j."""
    products(keys, SIZE * 16, SIZE * 16 * dim, vectors, q, 4 * q_width, queries, dim, out, 4 * PAGE_TOKENS)


def _plain_mix_template(values: int, j: int, filled: int, weights: int, queries: int, width: int, spare: int, out: int) -> None:
    """out (queries, width) += weights (queries, 256) times the values of a sequence's page j."""
    products(values, SIZE * width, SIZE * 16, width // 16, weights, 4 * PAGE_TOKENS, queries, filled, out, 4 * width)


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


# --- products with codes -------------------------------------------------------------------------------------------


def _turned_scores_template(keys: int, j: int, vectors: int, q: int, q_width: int, queries: int, dim: int, out: int) -> None:
    """As `_plain_scores_template`, of turned queries with codes, group by group."""
    groups, size, stride, out_stride = q_width // GROUP, 16 * (CODES + 2), 4 * q_width, 4 * PAGE_TOKENS
    head = keys
    if KEEPS:
        # The keys' mean gives all positions the same score, but the first of all, which are whole keys.
        whole = WHOLE_KEYS // 16 if j == 0 else 0
        if vectors > whole:
            for i in range(queries):
                row_fill(out + out_stride * i + 64 * whole, vectors - whole, row_dot(q + stride * i, head, q_width // 16))
        keys += (8 * q_width + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
    m = 0
    while m < vectors:
        wide = vectors - m >= VECTORS
        for g in range(groups):
            column = keys + (m * groups + g) * size
            r = 0
            while r < queries:
                x, y = q + r * stride + 4 * GROUP * g, out + r * out_stride + 64 * m
                if queries - r >= MANY:
                    if wide:
                        wide_many(column, groups * size, x, stride, y, out_stride)
                    else:
                        thin_many(column, groups * size, x, stride, y, out_stride)
                    r += MANY
                elif queries - r >= FEW:
                    if wide:
                        wide_few(column, groups * size, x, stride, y, out_stride)
                    else:
                        thin_few(column, groups * size, x, stride, y, out_stride)
                    r += FEW
                else:
                    if wide:
                        wide_one(column, groups * size, x, stride, y, out_stride)
                    else:
                        thin_one(column, groups * size, x, stride, y, out_stride)
                    r += 1
        m += VECTORS if wide else 1
    if KEEPS and j == 0:
        for i in range(queries):
            st_f32(out + out_stride * i, row_dot(q + stride * i, head + stride, q_width // 16))


def _turned_mix_template(values: int, j: int, filled: int, weights: int, queries: int, width: int, spare: int, out: int) -> None:
    """As `_plain_mix_template`: each weight takes the scale of its position's group, then multiplies codes."""
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
            if KEEPS and j == 0:
                st_f32(spare + stride * i, ZERO)
        r = 0
        while r < queries:
            if queries - r >= MANY:
                wide_many(codes, filled, spare + r * stride, stride, target + 4 * width * r, 4 * width)
                r += MANY
            elif queries - r >= FEW:
                wide_few(codes, filled, spare + r * stride, stride, target + 4 * width * r, 4 * width)
                r += FEW
            else:
                wide_one(codes, filled, spare + r * stride, stride, target + 4 * width * r, 4 * width)
                r += 1


_ROWS = tuple(zip(("many", "few", "one"), ATTENTION_ROW_STEPS, strict=True))
_SHAPES = (("wide", VECTORS), ("thin", 1))


def attention_products(kind: CacheType, jit: Jit) -> dict[str, Any]:
    """`scores_of` and `mix` for these formats; `jit(function, signature)` compiles them."""
    plain = {name: _plain_products(name, jit) for name in sorted({kind.keys, kind.values} & set(NUMBER_BYTES))}
    keys, values = kind.keys, kind.values
    if keys in QUANTISED:
        tiles = {f"{shape}_{rows}": key_tile(keys, vectors, n) for shape, vectors in _SHAPES for rows, n in _ROWS}
        scores = specialise(_turned_scores_template, f"scores_{keys}", CODES=CODE_BYTES[keys], KEEPS=keys == "q4", **tiles)
    else:
        scores = specialise(_plain_scores_template, f"scores_{keys}", products=plain[keys], SIZE=NUMBER_BYTES[keys])
    if values in QUANTISED:
        tiles = {f"wide_{rows}": value_tile(values, n) for rows, n in _ROWS}
        mix = specialise(_turned_mix_template, f"mix_{values}", CODES=CODE_BYTES[values], KEEPS=values == "q4", **tiles)
    else:
        mix = specialise(_plain_mix_template, f"mix_{values}", products=plain[values], SIZE=NUMBER_BYTES[values])
    return {"scores_of": jit(scores, words(8)), "mix": jit(mix, words(8))}


def _plain_products(name: str, jit: Jit) -> Any:
    tiles = {f"{shape}_{rows}": register_tile(vectors, n, name) for shape, vectors in _SHAPES for rows, n in _ROWS}
    return jit(specialise(_products_template, f"products_{name}", **tiles), words(10))
