"""RMS norm and layer norm of whole rows, or of each of several equal parts of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    I64,
    VF32,
    Accumulators,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    reduce,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.lowering.call import Argument, Calls, Table
from engine.backends.graph.rows import Magnitude, Norm

(N_X, N_X_STRIDE, N_Y, N_Y_STRIDE, N_WEIGHT, N_BIAS, N_PARTS, N_WIDTH, N_PART_STEP, N_EPS) = range(10)
"""x and y: addresses and strides in bytes. Addresses of weight and bias. Parts of a row, values of a part,
bytes from one part's weights to the next part's (0: all parts share them). Epsilon, float64.
"""


def _emit_sum(b: ir.IRBuilder, x: Any, vectors: Any) -> Any:
    total = Accumulators(b, 1)
    total.clear()
    with counted_loop(b, vectors) as i:
        total.set(0, b.fadd(total.get(0), load(b, b.add(x, b.mul(i, ir.Constant(I64, 64))), VF32)))
    return reduce(b, total.get(0), b.fadd)


def _emit_square_sum(b: ir.IRBuilder, x: Any, vectors: Any, centre: Any) -> Any:
    total, middle = Accumulators(b, 1), splat(b, centre)
    total.clear()
    with counted_loop(b, vectors) as i:
        value = b.fsub(load(b, b.add(x, b.mul(i, ir.Constant(I64, 64))), VF32), middle)
        total.add_product(0, value, value)
    return reduce(b, total.get(0), b.fadd)


def _emit_scaled(
    b: ir.IRBuilder, x: Any, vectors: Any, centre: Any, factor: Any, weight: Any, bias: Any, y: Any
) -> None:
    middle, times = splat(b, centre), splat(b, factor)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        value = b.fmul(b.fsub(load(b, b.add(x, offset), VF32), middle), times)
        store(
            b,
            fma(b, value, load(b, b.add(weight, offset), VF32), load(b, b.add(bias, offset), VF32)),
            b.add(y, offset),
        )


vector_sum = intrinsic_function("vector_sum", types.float32, (types.int64,) * 2, _emit_sum)
square_sum = intrinsic_function(
    "square_sum", types.float32, (types.int64, types.int64, types.float32), _emit_square_sum
)
scaled = intrinsic_function(
    "scaled",
    types.void,
    (types.int64, types.int64, types.float32, types.float32, *(types.int64,) * 3),
    _emit_scaled,
)

CENTRED = False
"""Filled in by `norm_kernel`."""


def _norm_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: (x - c) / sqrt(mean((x - c)^2) + eps) * weight + bias, for each part of the row.

    c is the mean for layer norm and 0 for RMS norm. Values past a part's last full vector are taken one by
    one, because parts are adjacent.
    """
    width, parts, stride = (
        ld_i64(args + 8 * N_WIDTH),
        ld_i64(args + 8 * N_PARTS),
        ld_i64(args + 8 * N_Y_STRIDE),
    )
    row = ld_i64(args + 8 * N_Y) + tile * stride
    vectors, whole = width // 16, width // 16 * 16
    for part in range(parts):
        x = ld_i64(args + 8 * N_X) + tile * ld_i64(args + 8 * N_X_STRIDE) + 4 * width * part
        y = row + 4 * width * part
        jump = part * ld_i64(args + 8 * N_PART_STEP)
        weight, bias = ld_i64(args + 8 * N_WEIGHT) + jump, ld_i64(args + 8 * N_BIAS) + jump
        centre = np.float32(0)
        if CENTRED:
            total = vector_sum(x, vectors)
            for i in range(whole, width):
                total += ld_f32(x + 4 * i)
            centre = np.float32(total / width)
        squares = square_sum(x, vectors, centre)
        for i in range(whole, width):
            squares += (ld_f32(x + 4 * i) - centre) * (ld_f32(x + 4 * i) - centre)
        factor = np.float32(1.0 / (squares / width + ld_f64(args + 8 * N_EPS)) ** 0.5)
        scaled(x, vectors, centre, factor, weight, bias, y)
        for i in range(whole, width):
            st_f32(
                y + 4 * i,
                (ld_f32(x + 4 * i) - centre) * factor * ld_f32(weight + 4 * i) + ld_f32(bias + 4 * i),
            )
    for i in range(parts * width, stride // 4):
        st_f32(row + 4 * i, 0.0)


def norm_kernel(name: str) -> Any:
    """The kernel "rms_norm" or "layer_norm"."""
    return specialise(_norm_template, name, CENTRED=name == "layer_norm")


(R_X, R_X_STRIDE, R_WIDTH, R_Y, R_Y_STRIDE, R_CENTRED) = range(6)


def magnitude(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: sqrt(mean((x - c)^2)), where c is the row's mean or 0."""
    width, stride = ld_i64(args + 8 * R_WIDTH), ld_i64(args + 8 * R_Y_STRIDE)
    x, y = (
        ld_i64(args + 8 * R_X) + tile * ld_i64(args + 8 * R_X_STRIDE),
        ld_i64(args + 8 * R_Y) + tile * stride,
    )
    vectors, centre = width // 16, np.float32(0)
    if ld_i64(args + 8 * R_CENTRED):
        total = vector_sum(x, vectors)
        for i in range(16 * vectors, width):
            total += ld_f32(x + 4 * i)
        centre = np.float32(total / width)
    squares = square_sum(x, vectors, centre)
    for i in range(16 * vectors, width):
        squares += (ld_f32(x + 4 * i) - centre) * (ld_f32(x + 4 * i) - centre)
    st_f32(y, np.float32((squares / width) ** 0.5))
    for i in range(1, stride // 4):
        st_f32(y + 4 * i, 0.0)


# --- lowering -----------------------------------------------------------------------------------------------


def _norm(calls: Calls, node: Norm) -> None:
    x, y, heads, params = node.x, node.y, node.heads, node.params
    width, size = x.width // heads, params.weight.size
    weight = calls.constants.vector(params.weight)
    bias = calls.constants.zeros(size) if params.bias is None else calls.constants.vector(params.bias)
    step = 0 if size == width else 4 * width
    arguments: list[Argument] = [x, x.stride, y, y.stride, weight, bias, heads, width, step]
    calls.each_row(f"{params.kind}_norm", [*arguments, float(params.eps)], [x], y)


def _magnitude(calls: Calls, node: Magnitude) -> None:
    x, y = node.x, node.y
    calls.each_row("magnitude", [x, x.stride, x.width, y, y.stride, int(node.centred)], [x], y)


LOWER: Table = {Norm: _norm, Magnitude: _magnitude}
