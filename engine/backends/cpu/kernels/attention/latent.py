"""The values of latent attention: a page's keys as float32, a position a row.

`attention.py` describes the layouts. Keys in q8 and q4 stay Hadamard-transformed.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    F32,
    I32,
    I64,
    LANES,
    const_f32,
    intrinsic_function,
    load,
    load_half,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.attention.tiles import READERS
from engine.backends.cpu.kernels.kv_write.tiles import CODE_BYTES, half_bytes, signed_bytes
from engine.backends.cpu.kernels.rows import copy_vectors
from engine.backends.kv_formats import GROUP, QUANTISED
from engine.core import PAGE_TOKENS

# Filled in for each format by `unpack_kernel`.
transpose: Any = None
SIZE = CODES = 0
KEEPS = False


def _plain_template(keys: int, j: int, vectors: int, dim: int, q_width: int, width: int, out: int) -> None:
    """out (16 `vectors`, width) = the first `width` columns of the keys of a sequence's page j; if keys are
    shorter, copies of the last column follow.
    """
    for m in range(vectors):
        source, target = keys + SIZE * 16 * dim * m, out + 64 * width * m
        for at in range(0, width, 16):
            transpose(source, at, dim, target + 4 * at, 4 * width)


def _hadamard_template(keys: int, j: int, vectors: int, dim: int, q_width: int, width: int, out: int) -> None:
    """As `_plain_template`, with transformed keys: codes times scales, plus the page's mean if it has one."""
    mean, groups, size = keys, q_width // GROUP, 16 * (CODES + 2)
    if KEEPS:
        keys += (8 * q_width + PAGE_TOKENS - 1) // PAGE_TOKENS * PAGE_TOKENS
    for m in range(vectors):
        source, target = keys + m * groups * size, out + 64 * width * m
        for g in range(width // GROUP):
            # The first 16 positions have no mean.
            added = mean + 4 * GROUP * g if KEEPS and j + m > 0 else 0
            transpose(source + g * size, added, target + 4 * GROUP * g, 4 * width)
    if KEEPS and j == 0:
        copy_vectors(mean + 4 * q_width, out, width // 16)


def _transposed(b: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """A square of 16 vectors with rows and lanes exchanged, bit by bit of their numbers."""
    step = LANES // 2
    while step:
        low = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
        high = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
        masks = [
            ir.Constant(ir.VectorType(I32, LANES), [ir.Constant(I32, i) for i in lanes])
            for lanes in (low, high)
        ]
        for i in range(LANES):
            if not i & step:
                first, second = rows[i], rows[i + step]
                rows[i], rows[i + step] = (b.shuffle_vector(first, second, mask) for mask in masks)
        step //= 2
    return rows


def _write(b: ir.IRBuilder, rows: list[ir.Value], target: Any, stride: Any, offset: int) -> None:
    for i, row in enumerate(_transposed(b, rows)):
        store(b, row, b.add(target, b.mul(stride, ir.Constant(I64, i))), offset)


def _transpose_plain(name: str) -> Any:
    """transpose(source, first, dim, target, stride): 16 columns from `first` on, of 16 positions.

    The columns of `source` are vectors of 16 positions; those from `dim` on repeat the last one.
    """
    size, read = READERS[name]

    def emit(b: ir.IRBuilder, source: Any, first: Any, dim: Any, target: Any, stride: Any) -> None:
        last = b.sub(dim, ir.Constant(I64, 1))
        rows = []
        for i in range(LANES):
            column = b.add(first, ir.Constant(I64, i))
            column = b.select(b.icmp_signed("<", column, dim), column, last)
            rows.append(read(b, b.add(source, b.mul(column, ir.Constant(I64, LANES * size)))))
        _write(b, rows, target, stride, 0)

    return intrinsic_function(f"transpose_{name}", types.void, (types.int64,) * 5, emit)


def _transpose_codes(name: str) -> Any:
    """transpose(block, mean, target, stride): the 32 columns of a group, of 16 positions.

    `mean` (32,) float32 is added; 0 stands for none.
    """
    steps = CODE_BYTES[name]

    def emit(b: ir.IRBuilder, block: Any, mean: Any, target: Any, stride: Any) -> None:
        scale, there = load_half(b, block), b.icmp_signed("!=", mean, ir.Constant(I64, 0))
        # Without a mean the block is read in its place and dropped: select needs no branch.
        place = b.select(there, mean, block)
        for half in range(2):
            rows = []
            for i in range(LANES):
                row = i if steps < GROUP else LANES * half + i
                address = b.add(block, ir.Constant(I64, 2 * LANES + LANES * row))
                code = signed_bytes(b, address) if name == "q8" else half_bytes(b, address, half == 1)
                value = b.fmul(scale, code)
                if name == "q4":
                    added = b.select(there, load(b, place, F32, 64 * half + 4 * i), const_f32(0.0))
                    value = b.fadd(value, splat(b, added))
                rows.append(value)
            _write(b, rows, target, stride, 64 * half)

    return intrinsic_function(f"transpose_{name}", types.void, (types.int64,) * 4, emit)


def unpack_kernel(name: str) -> Any:
    """unpack(keys, j, vectors, dim, q_width, width, out) for keys of the format `name`."""
    if name not in QUANTISED:
        made, size = _transpose_plain(name), READERS[name][0]
        return specialise(_plain_template, f"unpack_{name}", transpose=made, SIZE=size)
    return specialise(
        _hadamard_template, f"unpack_{name}", transpose=_transpose_codes(name), CODES=CODE_BYTES[name],
        KEEPS=name == "q4",
    )  # fmt: skip
