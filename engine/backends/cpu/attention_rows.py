"""What softmax does to a row of scores, and outputs with it: vectors of 16 float32 in scratch memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.simd import (
    I64,
    VF32,
    Accumulators,
    const_f32,
    const_vector,
    counted_loop,
    exp_vector,
    fma,
    intrinsic_function,
    load,
    reduce,
    splat,
    store,
    tanh_vector,
)

MINUS_INFINITY = -float("inf")


def _emit_max(b: ir.IRBuilder, row: Any, vectors: Any) -> Any:
    top = Accumulators(b, 1)
    b.store(const_vector(MINUS_INFINITY), top.slots[0])
    with counted_loop(b, vectors) as i:
        value = load(b, b.add(row, b.mul(i, ir.Constant(I64, 64))), VF32)
        top.set(0, b.select(b.fcmp_ordered(">", value, top.get(0)), value, top.get(0)))
    return reduce(b, top.get(0), lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


def _emit_exp(b: ir.IRBuilder, row: Any, vectors: Any, maximum: Any) -> Any:
    total, top = Accumulators(b, 1), splat(b, maximum)
    total.clear()
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        value = exp_vector(b, b.fsub(load(b, address, VF32), top))
        store(b, value, address)
        total.set(0, b.fadd(total.get(0), value))
    return reduce(b, total.get(0), b.fadd)


def _emit_scale(b: ir.IRBuilder, row: Any, vectors: Any, factor: Any) -> None:
    times = splat(b, factor)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, b.fmul(load(b, address, VF32), times), address)


def _emit_cap(b: ir.IRBuilder, row: Any, vectors: Any, cap: Any) -> None:
    high, inverse = splat(b, cap), splat(b, b.fdiv(const_f32(1.0), cap))
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, b.fmul(high, tanh_vector(b, b.fmul(load(b, address, VF32), inverse))), address)


def _emit_clear(b: ir.IRBuilder, row: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        store(b, const_vector(0.0), b.add(row, b.mul(i, ir.Constant(I64, 64))))


def _emit_fill(b: ir.IRBuilder, row: Any, vectors: Any, value: Any) -> None:
    filling = splat(b, value)
    with counted_loop(b, vectors) as i:
        store(b, filling, b.add(row, b.mul(i, ir.Constant(I64, 64))))


def _emit_add(b: ir.IRBuilder, row: Any, x: Any, vectors: Any, factor: Any) -> None:
    times = splat(b, factor)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        place = b.add(row, offset)
        store(b, fma(b, times, load(b, b.add(x, offset), VF32), load(b, place, VF32)), place)


def _emit_dot(b: ir.IRBuilder, x: Any, y: Any, vectors: Any) -> Any:
    total = Accumulators(b, 1)
    total.clear()
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        total.add_product(0, load(b, b.add(x, offset), VF32), load(b, b.add(y, offset), VF32))
    return reduce(b, total.get(0), b.fadd)


def _emit_exp_scalar(b: ir.IRBuilder, x: Any) -> Any:
    return b.extract_element(exp_vector(b, splat(b, x)), ir.Constant(ir.IntType(32), 0))


row_max = intrinsic_function("row_max", types.float32, (types.int64, types.int64), _emit_max)
row_exp = intrinsic_function("row_exp", types.float32, (types.int64, types.int64, types.float32), _emit_exp)
row_scale = intrinsic_function("row_scale", types.void, (types.int64, types.int64, types.float32), _emit_scale)
row_cap = intrinsic_function("row_cap", types.void, (types.int64, types.int64, types.float32), _emit_cap)
row_clear = intrinsic_function("row_clear", types.void, (types.int64, types.int64), _emit_clear)
row_fill = intrinsic_function("row_fill", types.void, (types.int64, types.int64, types.float32), _emit_fill)
row_add = intrinsic_function("row_add", types.void, (types.int64, types.int64, types.int64, types.float32), _emit_add)
row_dot = intrinsic_function("row_dot", types.float32, (types.int64, types.int64, types.int64), _emit_dot)
exp_scalar = intrinsic_function("exp_scalar", types.float32, (types.float32,), _emit_exp_scalar)
