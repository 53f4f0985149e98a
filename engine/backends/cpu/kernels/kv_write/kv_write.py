"""Writing the keys and values of a step's rows into the paged KV cache; `attention.py` has the layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, ld_i64, st_e4m3, st_f16, st_f32
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.kv_write.query_aware import hadamard_head, query_aware_keys_kernel
from engine.backends.cpu.kernels.kv_write.tiles import (
    CODE_BYTES,
    CODES_ROOM,
    pack_q4,
    quantise_q4,
    quantise_q8,
)
from engine.backends.cpu.kernels.runs import block_table_function
from engine.backends.cpu.runtime.step_block import POSITIONS
from engine.backends.kv_formats import GROUP, QUANTISED
from engine.core import PAGE_TOKENS

(W_SOURCE, W_STRIDE, W_TARGET, W_KV_HEADS, W_DIM, W_PAGE) = range(6)
"""Rows: address, stride in bytes. The layer's keys or values. Heads, head dimension, page bytes of a head."""
SCRATCH_CODES = 64
SCRATCH_WORK = SCRATCH_CODES + CODES_ROOM
ZERO, ONE = np.float32(0), np.float32(1)

# Filled in for each format by `kv_write_kernel`.
block_table: Any = None
put: Any = None
head_of: Any = None
SIZE = CODES = 0


def _plain_keys_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(block_table(step, tile) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * W_KV_HEADS), ld_i64(args + 8 * W_DIM), position % PAGE_TOKENS
    source = ld_i64(args + 8 * W_SOURCE) + tile * ld_i64(args + 8 * W_STRIDE)
    for g in range(groups):
        target = ld_i64(args + 8 * W_TARGET) + (page * groups + g) * ld_i64(args + 8 * W_PAGE)
        target += SIZE * (slot // 16 * dim * 16 + slot % 16)
        for d in range(dim):
            put(target + SIZE * 16 * d, ld_f32(source + 4 * (g * dim + d)))


def _plain_values_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(block_table(step, tile) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * W_KV_HEADS), ld_i64(args + 8 * W_DIM), position % PAGE_TOKENS
    width = (dim + 15) // 16 * 16
    source = ld_i64(args + 8 * W_SOURCE) + tile * ld_i64(args + 8 * W_STRIDE)
    for g in range(groups):
        target = (
            ld_i64(args + 8 * W_TARGET)
            + (page * groups + g) * ld_i64(args + 8 * W_PAGE)
            + SIZE * slot * width
        )
        for d in range(dim):
            put(target + SIZE * d, ld_f32(source + 4 * (g * dim + d)))


def _hadamard_values_template(args: int, step: int, tile: int, scratch: int) -> None:
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    page = ld_i32(block_table(step, tile) + 4 * (position // PAGE_TOKENS))
    groups, dim, slot = ld_i64(args + 8 * W_KV_HEADS), ld_i64(args + 8 * W_DIM), position % PAGE_TOKENS
    count, work, codes = (dim + GROUP - 1) // GROUP, scratch + SCRATCH_WORK, scratch + SCRATCH_CODES
    zeros = work + 4 * GROUP * count
    source = ld_i64(args + 8 * W_SOURCE) + tile * ld_i64(args + 8 * W_STRIDE)
    for i in range(GROUP):
        st_f32(zeros + 4 * i, ZERO)
    for g in range(groups):
        head_of(source + 4 * g * dim, dim, count, work)
        scales = ld_i64(args + 8 * W_TARGET) + (page * groups + g) * ld_i64(args + 8 * W_PAGE)
        if CODES < GROUP:
            if position == 0:
                for d in range(count * GROUP):
                    st_f32(scales + 4 * d, ld_f32(work + 4 * d))
            scales += (4 * count * GROUP + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
        for j in range(count):
            target = scales + 2 * PAGE_TOKENS + CODES * slot
            if CODES == GROUP:
                quantise_q8(work + 4 * GROUP * j, scales + 2 * slot, target)
            else:
                quantise_q4(work + 4 * GROUP * j, zeros, zeros, ZERO, ONE, scales + 2 * slot, codes)
                pack_q4(codes, target)
            scales += PAGE_TOKENS * (2 + CODES)


_PLAIN = {"fp32": (4, st_f32), "fp16": (2, st_f16), "fp8": (1, st_e4m3)}


def kv_write_kernel(side: str, name: str, jit: Jit) -> Any:
    """The kernel that writes "keys" or "values" (`side`) in the format `name`; `jit(function, signature)`
    compiles its parts. One tile writes one row; for q4 keys see `query_aware`.
    """
    table = block_table_function(jit)
    if name not in QUANTISED:
        size, writer = _PLAIN[name]
        template = _plain_keys_template if side == "keys" else _plain_values_template
        return specialise(template, f"write_{side}_{name}", SIZE=size, put=writer, **table)
    if side == "keys":
        return query_aware_keys_kernel(name, jit)
    return specialise(
        _hadamard_values_template,
        f"write_{side}_{name}",
        head_of=jit(hadamard_head, words(4)),
        CODES=CODE_BYTES[name],
        **table,
    )
