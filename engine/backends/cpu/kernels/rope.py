"""Rotary position embedding. Source: RoFormer, arXiv 2104.09864, equation 34."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I32,
    I64,
    LANES,
    VF32,
    counted_loop,
    intrinsic_function,
    load,
    store,
)
from engine.backends.cpu.kernels.rows import copy_vectors
from engine.backends.cpu.lowering.call import Calls, Table
from engine.backends.cpu.runtime.step_block import ROPE_POSITIONS
from engine.backends.graph.attention import Rope

(R_X, R_STRIDE, R_Y, R_COS, R_SIN, R_HALF, R_HEADS, R_HEAD_DIM, R_INTERLEAVED) = range(9)
"""x and y: addresses, one stride in bytes. Tables cos and sin: addresses, (positions, `R_HALF`) float32.
Heads, the head dimension, and whether pairs are (2 i, 2 i + 1) rather than (i, i + `R_HALF`).
"""

_PAIRS = ir.VectorType(F32, LANES // 2)
_TWICE, _SWAP = [lane // 2 for lane in range(LANES)], [lane ^ 1 for lane in range(LANES)]
"""Which of eight angles each lane takes, and the other number of its pair."""


def _emit_apart(b: ir.IRBuilder, x: Any, near: Any, cos: Any, sin: Any, y: Any, vectors: Any) -> None:
    """Rotate pairs `near` bytes apart, 16 at a time, by the same operations as one by one."""
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        here, there = b.add(x, offset), b.add(b.add(x, near), offset)
        c, s, first, second = (
            load(b, a, VF32) for a in (b.add(cos, offset), b.add(sin, offset), here, there)
        )
        store(b, b.fsub(b.fmul(first, c), b.fmul(second, s)), b.add(y, offset))
        store(b, b.fadd(b.fmul(first, s), b.fmul(second, c)), b.add(b.add(y, near), offset))


rotate_vectors = intrinsic_function("rotate_vectors", types.void, (types.int64,) * 6, _emit_apart)


def _emit_pairs(b: ir.IRBuilder, x: Any, cos: Any, sin: Any, y: Any, vectors: Any) -> None:
    """Rotate neighbouring pairs, eight at a time, by the same operations as one by one."""
    nothing = ir.Constant(_PAIRS, ir.Undefined)
    twice, swap = (
        ir.Constant(ir.VectorType(I32, LANES), [ir.Constant(I32, lane) for lane in order])
        for order in (_TWICE, _SWAP)
    )
    signs = ir.Constant(VF32, [ir.Constant(F32, sign) for sign in (-1.0, 1.0) * (LANES // 2)])
    with counted_loop(b, vectors) as i:
        small, offset = b.mul(i, ir.Constant(I64, 32)), b.mul(i, ir.Constant(I64, 64))
        c, s = (b.shuffle_vector(load(b, b.add(a, small), _PAIRS), nothing, twice) for a in (cos, sin))
        own = load(b, b.add(x, offset), VF32)
        other = b.shuffle_vector(own, ir.Constant(VF32, ir.Undefined), swap)
        store(b, b.fadd(b.fmul(own, c), b.fmul(other, b.fmul(s, signs))), b.add(y, offset))


rotate_pairs = intrinsic_function("rotate_pairs", types.void, (types.int64,) * 5, _emit_pairs)


def rope(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: rotate the pairs (a, b) of every head by the angles of the row's rope position.

    a' = a cos - b sin, b' = a sin + b cos. Dimensions from 2 `R_HALF` on are copied.
    """
    half, head_dim = ld_i64(args + 8 * R_HALF), ld_i64(args + 8 * R_HEAD_DIM)
    position = ld_i32(ld_i64(step + 8 * ROPE_POSITIONS) + 4 * tile)
    cos = ld_i64(args + 8 * R_COS) + 4 * half * position
    sin = ld_i64(args + 8 * R_SIN) + 4 * half * position
    stride = ld_i64(args + 8 * R_STRIDE)
    x, y = ld_i64(args + 8 * R_X) + tile * stride, ld_i64(args + 8 * R_Y) + tile * stride
    if 2 * half < head_dim or stride // 4 > head_dim * ld_i64(args + 8 * R_HEADS):
        copy_vectors(x, y, stride // 64)
    interleaved = ld_i64(args + 8 * R_INTERLEAVED)
    if not interleaved and half % 16 == 0:
        for h in range(ld_i64(args + 8 * R_HEADS)):
            rotate_vectors(x + 4 * head_dim * h, 4 * half, cos, sin, y + 4 * head_dim * h, half // 16)
        return
    if interleaved and half % 8 == 0:
        for h in range(ld_i64(args + 8 * R_HEADS)):
            rotate_pairs(x + 4 * head_dim * h, cos, sin, y + 4 * head_dim * h, half // 8)
        return
    pair, near = (8, 4) if interleaved else (4, 4 * half)
    for h in range(ld_i64(args + 8 * R_HEADS)):
        head = 4 * head_dim * h
        for i in range(half):
            c, s = ld_f32(cos + 4 * i), ld_f32(sin + 4 * i)
            first, second = head + pair * i, head + pair * i + near
            a, b = ld_f32(x + first), ld_f32(x + second)
            st_f32(y + first, a * c - b * s)
            st_f32(y + second, a * s + b * c)


# --- lowering -----------------------------------------------------------------------------------------------


def _rope(calls: Calls, node: Rope) -> None:
    x, y, table = node.x, node.y, node.table
    address = calls.constants.shared if table.given else calls.constants.table
    cos, sin = address(table.cos), address(table.sin)
    sizes = table.cos.shape[1], node.heads, x.width // node.heads, int(table.interleaved)
    calls.each_row("rope", [x, x.stride, y, cos, sin, *sizes], [x], y)


LOWER: Table = {Rope: _rope}
