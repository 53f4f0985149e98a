"""Writing q8 and q4 keys with query-aware rounding; q4 stores differences from a mean.

`engine.backends.kv_rounding` defines what is stored, and why; `attention.py` describes the layout. For q8 a
tile writes one row. For q4 it writes a run's rows of a head in order, because means are taken over stored
keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i8, ld_i32, ld_i64, st_f32, st_i8
from engine.backends.cpu.codegen.simd import (
    I64,
    LANES,
    Accumulators,
    const_vector,
    counted_loop,
    intrinsic_function,
    load_half,
    reduce,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.kv_write.tiles import (
    CODE_BYTES,
    CODES_ROOM,
    hadamard,
    half_bytes,
    limit,
    pack_q4,
    quantise_q4,
    round_query_aware_q8,
)
from engine.backends.cpu.kernels.runs import block_table_function
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    RUN_FIRST,
    RUN_PAGES,
    RUN_ROWS,
    RUN_TABLE,
    RUN_WORDS,
    RUNS,
)
from engine.backends.kv_formats import GROUP, QUERY_ERROR_WEIGHT, WHOLE_KEYS
from engine.core import PAGE_TOKENS

(K_SOURCE, K_STRIDE, K_TARGET, K_KV_HEADS, K_DIM, K_PAGE, K_Q, K_Q_STRIDE, K_HEADS) = range(9)
"""The arguments of `kv_write`, then the rows' queries: address, stride in bytes, heads."""
SCRATCH_CODES = 64
SCRATCH_WORK = SCRATCH_CODES + CODES_ROOM
BLOCK = 16 * (2 + CODE_BYTES["q4"])
"""Bytes of one group of 16 positions."""
ZERO, ONE = np.float32(0), np.float32(1)
SLACK = np.float32(1 / QUERY_ERROR_WEIGHT)


def _emit_key_sums(b: ir.IRBuilder, column: Any, stride: Any, blocks: Any, skip: Any, out: Any) -> None:
    """key_sums: out (32,) = the sum of one group over 16 `blocks` positions, from position `skip` on."""
    wide = ir.VectorType(I64, LANES)
    lanes = ir.Constant(wide, [ir.Constant(I64, i) for i in range(LANES)])
    totals = Accumulators(b, 2)
    with counted_loop(b, ir.Constant(I64, 16)) as row:
        totals.clear()
        with counted_loop(b, blocks) as i:
            block = b.add(column, b.mul(i, stride))
            address = b.add(block, b.add(b.shl(row, ir.Constant(I64, 4)), ir.Constant(I64, 2 * LANES)))
            place = b.add(splat(b, b.mul(i, ir.Constant(I64, LANES))), lanes)
            scale = b.select(
                b.icmp_signed("<", place, splat(b, skip)), const_vector(0.0), load_half(b, block)
            )
            for half in range(2):
                totals.add_product(half, scale, half_bytes(b, address, half == 1))
        for half in range(2):
            store(
                b, reduce(b, totals.get(half), b.fadd), b.add(out, b.shl(row, ir.Constant(I64, 2))), 64 * half
            )


key_sums = intrinsic_function("key_sums", types.void, (types.int64,) * 5, _emit_key_sums)

# Filled in by `query_aware_keys_kernel`.
block_table: Any = None
head_of: Any = None
mean_of: Any = None
query_direction: Any = None
round_query_aware: Any = None


def _q8_keys_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(block_table(step, tile) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * K_KV_HEADS), ld_i64(args + 8 * K_DIM), position % PAGE_TOKENS
    count, size = (dim + GROUP - 1) // GROUP, 16 * (2 + GROUP)
    source = ld_i64(args + 8 * K_SOURCE) + tile * ld_i64(args + 8 * K_STRIDE)
    work = scratch + SCRATCH_WORK
    direction = work + 4 * GROUP * count
    gains = direction + 4 * GROUP * count
    for g in range(groups):
        head_of(source + 4 * dim * g, dim, count, work)
        query_direction(args, tile, g, count, direction)
        block = (
            ld_i64(args + 8 * K_TARGET)
            + (page * groups + g) * ld_i64(args + 8 * K_PAGE)
            + slot // 16 * count * size
        )
        error = ZERO
        for j in range(count):
            at, lane = 4 * GROUP * j, slot % 16
            error = round_query_aware_q8(
                work + at, direction + at, gains + at, error, block + 2 * lane, block + 2 * LANES + lane
            )
            block += size


def _q4_keys_template(args: int, step: int, tile: int, scratch: int) -> None:
    groups, dim = ld_i64(args + 8 * K_KV_HEADS), ld_i64(args + 8 * K_DIM)
    if tile // groups >= ld_i64(step + 8 * RUNS):
        return
    run, g = step + 8 * (RUN_TABLE + RUN_WORDS * (tile // groups)), tile % groups
    pages, first = ld_i64(run + 8 * RUN_PAGES), ld_i64(run + 8 * RUN_FIRST)
    count = (dim + GROUP - 1) // GROUP
    source, stride = ld_i64(args + 8 * K_SOURCE) + 4 * dim * g, ld_i64(args + 8 * K_STRIDE)
    head = (count * 8 * GROUP + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
    target, page_bytes = ld_i64(args + 8 * K_TARGET), ld_i64(args + 8 * K_PAGE)
    work = scratch + SCRATCH_WORK
    direction = work + 4 * GROUP * count
    for t in range(first, first + ld_i64(run + 8 * RUN_ROWS)):
        position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * t)
        slot = position % PAGE_TOKENS
        here = target + (ld_i32(pages + 4 * (position // PAGE_TOKENS)) * groups + g) * page_bytes
        if position == WHOLE_KEYS:
            mean_of(here, head, count, 0, here)
        elif slot == 0 and position > 0:
            before = target + (ld_i32(pages + 4 * (position // PAGE_TOKENS - 1)) * groups + g) * page_bytes
            mean_of(before, head, count, position // PAGE_TOKENS, here)
        head_of(source + t * stride, dim, count, work)
        if position == 0:
            for d in range(count * GROUP):
                st_f32(here + 4 * (count * GROUP + d), ld_f32(work + 4 * d))
        if position >= WHOLE_KEYS:
            for d in range(count * GROUP):
                st_f32(work + 4 * d, ld_f32(work + 4 * d) - ld_f32(here + 4 * d))
        query_direction(args, t, g, count, direction)
        round_query_aware(
            here + head + slot // 16 * count * BLOCK,
            slot % 16,
            count,
            work,
            direction,
            scratch + SCRATCH_CODES,
        )


def hadamard_head(source: int, dim: int, count: int, work: int) -> None:
    """Copy one head's vector to scratch: padded with zeros to whole groups, limited, transformed."""
    for d in range(dim):
        st_f32(work + 4 * d, ld_f32(source + 4 * d))
    for d in range(dim, count * GROUP):
        st_f32(work + 4 * d, ZERO)
    limit(work, count)
    hadamard(work, count)


def _mean_of(before: int, head: int, count: int, page: int, target: int) -> None:
    """Write to `target` the transformed mean that the keys of a page are differences from.

    For `page` 0 it is the mean of positions 1 .. 15 of the page at `before`; otherwise that of the whole
    previous page, at `before`.
    """
    if page == 0:
        for j in range(count):
            place = target + 4 * GROUP * j
            key_sums(before + head + j * BLOCK, count * BLOCK, 1, 1, place)
            for d in range(GROUP):
                st_f32(place + 4 * d, ld_f32(place + 4 * d) / np.float32(WHOLE_KEYS - 1))
        return
    # In the first page the first 16 keys are not differences, and the very first is kept in float32.
    share = np.float32(PAGE_TOKENS - WHOLE_KEYS) / np.float32(PAGE_TOKENS) if page == 1 else ONE
    for j in range(count):
        place, mean, first = target + 4 * GROUP * j, before + 4 * GROUP * j, before + 4 * GROUP * (count + j)
        key_sums(before + head + j * BLOCK, count * BLOCK, PAGE_TOKENS // 16, 1 if page == 1 else 0, place)
        for d in range(GROUP):
            total = ld_f32(place + 4 * d) + (ld_f32(first + 4 * d) if page == 1 else ZERO)
            st_f32(place + 4 * d, total / np.float32(PAGE_TOKENS) + share * ld_f32(mean + 4 * d))


def _query_direction(args: int, t: int, g: int, count: int, direction: int) -> None:
    """Write to `direction` the transformed unit vector d along the sum of the row's unit queries.

    The gains d_i / r_i follow it, then r_i = SLACK + the sum of d_j^2 over j > i: each (count * 32,) float32.
    """
    dim, ratio = ld_i64(args + 8 * K_DIM), ld_i64(args + 8 * K_HEADS) // ld_i64(args + 8 * K_KV_HEADS)
    width = count * GROUP
    for d in range(width):
        st_f32(direction + 4 * d, ZERO)
    for h in range(ratio):
        q = ld_i64(args + 8 * K_Q) + t * ld_i64(args + 8 * K_Q_STRIDE) + 4 * dim * (g * ratio + h)
        length = ZERO
        for d in range(dim):
            length += ld_f32(q + 4 * d) * ld_f32(q + 4 * d)
        if length > ZERO:
            factor = ONE / np.sqrt(length)
            for d in range(dim):
                st_f32(direction + 4 * d, ld_f32(direction + 4 * d) + ld_f32(q + 4 * d) * factor)
    limit(direction, count)
    hadamard(direction, count)
    length = ZERO
    for d in range(width):
        length += ld_f32(direction + 4 * d) * ld_f32(direction + 4 * d)
    factor = ONE / np.sqrt(length) if length > ZERO else ZERO
    rest = SLACK
    for i in range(width):
        d = width - 1 - i
        value = ld_f32(direction + 4 * d) * factor
        st_f32(direction + 4 * (2 * width + d), rest)
        rest += value * value
        st_f32(direction + 4 * d, value)
        st_f32(direction + 4 * (width + d), value / rest)


def _round_query_aware(block: int, lane: int, count: int, work: int, direction: int, codes: int) -> None:
    """Write the scales and codes of one position, whose vectors are in scratch memory."""
    error, gains, rests = ZERO, direction + 4 * GROUP * count, direction + 8 * GROUP * count
    for j in range(count):
        at = 4 * GROUP * j
        rest = ld_f32(rests + at + 4 * (GROUP - 1))
        error = quantise_q4(work + at, direction + at, gains + at, error, rest, block + 2 * lane, codes)
        pack_q4(codes, codes)
        for i in range(16):
            st_i8(block + 32 + 16 * i + lane, ld_i8(codes + i))
        block += BLOCK


def query_aware_keys_kernel(name: str, jit: Jit) -> Any:
    """The kernel that writes keys as "q8" (one tile for each row) or "q4" (one for each head and run);
    `jit(function, signature)` compiles its parts.
    """
    parts = {"head_of": jit(hadamard_head, words(4)), "query_direction": jit(_query_direction, words(5))}
    if name == "q8":
        return specialise(_q8_keys_template, "write_keys_q8", **parts, **block_table_function(jit))
    return specialise(
        _q4_keys_template,
        "write_keys_q4",
        mean_of=jit(_mean_of, words(5)),
        round_query_aware=jit(_round_query_aware, words(6)),
        **parts,
    )
