"""The small row-wise operations: embedding rows, RMS norm, SiLU gate, and the choice of the rows that need logits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.family import Family
from engine.backends.cpu.linear import PANEL, SCRATCH_PANEL, _unpack, specialise
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
    st_f32,
    store,
)
from engine.backends.cpu.step import LOGIT_ROWS, ROWS, TOKENS

# --- embedding -----------------------------------------------------------------------------------------------------

(E_WEIGHT, E_TILE_BYTES, E_BLOCKS, E_COLUMNS, E_Y, E_Y_STRIDE, E_SCALE) = range(7)
unpack: Any = None
UNIT = BLOCK_BYTES = 0


def _embed_template(args: int, step: int, tile: int, scratch: int) -> None:
    token = ld_i32(ld_i64(step + 8 * TOKENS) + 4 * tile)
    source = ld_i64(args + 8 * E_WEIGHT) + (token // 16) * ld_i64(args + 8 * E_TILE_BYTES)
    blocks, columns = ld_i64(args + 8 * E_BLOCKS), ld_i64(args + 8 * E_COLUMNS)
    stride = ld_i64(args + 8 * E_Y_STRIDE)
    y = ld_i64(args + 8 * E_Y) + tile * stride
    scale = ld_f64(args + 8 * E_SCALE)
    panel = scratch + SCRATCH_PANEL
    lane = panel + 4 * (token % 16)
    for start in range(0, blocks, PANEL // UNIT):
        count = min(PANEL // UNIT, blocks - start)
        unpack(source + start * BLOCK_BYTES, count, panel)
        for k in range(min(count * UNIT, columns - start * UNIT)):
            st_f32(y + 4 * (start * UNIT + k), ld_f32(lane + 64 * k) * scale)
    for k in range(columns, stride // 4):
        st_f32(y + 4 * k, 0.0)


def embed_kernel(family: Family) -> Any:
    """One tile a row: the row of the token id, unpacked from its tile of 16."""
    return specialise(_embed_template, f"embed_{family.name}", unpack=_unpack(family), UNIT=family.unit, BLOCK_BYTES=family.block_bytes)


# --- RMS norm ------------------------------------------------------------------------------------------------------

(N_X, N_X_STRIDE, N_Y, N_Y_STRIDE, N_WEIGHT, N_WIDTH, N_EPS) = range(7)


def _emit_square_sum(b: ir.IRBuilder, x: Any, vectors: Any) -> Any:
    total = Accumulators(b, 1)
    total.clear()
    with counted_loop(b, vectors) as i:
        value = load(b, b.add(x, b.mul(i, ir.Constant(I64, 64))), VF32)
        total.add_product(0, value, value)
    return reduce(b, total.get(0), b.fadd)


def _emit_scaled(b: ir.IRBuilder, x: Any, scale: Any, weight: Any, y: Any, vectors: Any) -> None:
    factor = splat(b, scale)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        value = b.fmul(b.fmul(load(b, b.add(x, offset), VF32), factor), load(b, b.add(weight, offset), VF32))
        store(b, value, b.add(y, offset))


square_sum = intrinsic_function("square_sum", types.float32, (types.int64, types.int64), _emit_square_sum)
scaled = intrinsic_function("scaled", types.void, (types.int64, types.float32, types.int64, types.int64, types.int64), _emit_scaled)


def rms_norm(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile a row: y = x / sqrt(mean(x^2) + eps) * weight."""
    x = ld_i64(args + 8 * N_X) + tile * ld_i64(args + 8 * N_X_STRIDE)
    y = ld_i64(args + 8 * N_Y) + tile * ld_i64(args + 8 * N_Y_STRIDE)
    vectors = ld_i64(args + 8 * N_Y_STRIDE) // 64
    mean = square_sum(x, vectors) / ld_i64(args + 8 * N_WIDTH)
    scaled(x, 1.0 / (mean + ld_f64(args + 8 * N_EPS)) ** 0.5, ld_i64(args + 8 * N_WEIGHT), y, vectors)


# --- SiLU gate -----------------------------------------------------------------------------------------------------

(S_GATE, S_UP, S_Y, S_STRIDE, S_CHUNKS) = range(5)
SILU_VECTORS = 64
"""Vectors of one tile: 1,024 values."""


def _emit_silu_mul(b: ir.IRBuilder, gate: Any, up: Any, y: Any, vectors: Any) -> None:
    zero, one = const_vector(0.0), const_vector(1.0)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        x = load(b, b.add(gate, offset), VF32)
        positive = b.fcmp_ordered(">=", x, zero)
        # exp of minus |x| cannot overflow: sigmoid(x) is 1 / (1 + e) or e / (1 + e).
        e = exp_vector(b, b.select(positive, b.fsub(zero, x), x))
        sigmoid = b.fdiv(b.select(positive, one, e), b.fadd(one, e))
        store(b, b.fmul(b.fmul(x, sigmoid), load(b, b.add(up, offset), VF32)), b.add(y, offset))


silu_vectors = intrinsic_function("silu_vectors", types.void, (types.int64,) * 4, _emit_silu_mul)


def silu_mul(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row and chunk of 1,024 columns: y = silu(gate) * up."""
    chunks, stride = ld_i64(args + 8 * S_CHUNKS), ld_i64(args + 8 * S_STRIDE)
    first = (tile % chunks) * SILU_VECTORS
    offset = (tile // chunks) * stride + 64 * first
    vectors = min(SILU_VECTORS, stride // 64 - first)
    silu_vectors(ld_i64(args + 8 * S_GATE) + offset, ld_i64(args + 8 * S_UP) + offset, ld_i64(args + 8 * S_Y) + offset, vectors)


# --- rows that need logits -----------------------------------------------------------------------------------------

(L_X, L_Y, L_STRIDE) = range(3)


def last_rows(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile a row: copy row T - logit_rows + tile."""
    stride = ld_i64(args + 8 * L_STRIDE)
    row = ld_i64(step + 8 * ROWS) - ld_i64(step + 8 * LOGIT_ROWS) + tile
    x, y = ld_i64(args + 8 * L_X) + row * stride, ld_i64(args + 8 * L_Y) + tile * stride
    for k in range(stride // 4):
        st_f32(y + 4 * k, ld_f32(x + 4 * k))
