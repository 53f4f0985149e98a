"""Code for the quantised cache types: turning by the Walsh-Hadamard transform, rounding to codes, and the register tiles.

A group is 32 turned dimensions of one head at one position: an fp16 scale and 32 codes, which lie in memory as

q8   32 bytes: int8 codes -128 .. 127;
q4   16 bytes: byte i holds code i + 8 in its low half and code (i + 16) + 8 in its high half.

The tiles turn codes into float32 in registers; nothing is unpacked to memory. What a code means is written down once more, in
plain torch, in `engine.backends.cache_rounding`.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cache_types import GROUP
from engine.backends.cpu.simd import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    Accumulators,
    const_f32,
    const_vector,
    counted_loop,
    emit_store_half,
    fma,
    intrinsic_function,
    load,
    load_half,
    load_half_everywhere,
    reduce,
    rint,
    splat,
    store,
)

CODE_BYTES = {"q8": GROUP, "q4": GROUP // 2}
"""Bytes of one group's codes."""
_LEVELS = {"q8": 128, "q4": 8}
_VI8 = ir.VectorType(I8, LANES)
_LARGEST = 65504.0


# --- to codes ------------------------------------------------------------------------------------------------------


def _butterfly(b: ir.IRBuilder, value: ir.Value, distance: int) -> ir.Value:
    """Sums and differences of the lanes `distance` apart."""
    mask = ir.Constant(VI32, [ir.Constant(I32, i ^ distance) for i in range(LANES)])
    sign = ir.Constant(VF32, [ir.Constant(F32, -1.0 if i & distance else 1.0) for i in range(LANES)])
    return b.fadd(b.shuffle_vector(value, ir.Constant(VF32, ir.Undefined), mask), b.fmul(value, sign))


def _emit_turn(b: ir.IRBuilder, address: Any, groups: Any) -> None:
    """The orthonormal 32-point transform of each group of float32, in place; it is its own inverse."""
    with counted_loop(b, groups) as g:
        first = b.add(address, b.mul(g, ir.Constant(I64, 4 * GROUP)))
        x, y = load(b, first, VF32), load(b, first, VF32, 64)
        for half, part in enumerate((b.fadd(x, y), b.fsub(x, y))):
            for distance in (8, 4, 2, 1):
                part = _butterfly(b, part, distance)
            store(b, b.fmul(part, const_vector(1 / math.sqrt(GROUP))), first, 64 * half)


def _emit_limit(b: ir.IRBuilder, address: Any, groups: Any) -> None:
    """NaN becomes 0, and what fp16 cannot hold its largest number, so that one wild number spoils no scale."""
    with counted_loop(b, b.mul(groups, ir.Constant(I64, 2))) as i:
        place = b.add(address, b.mul(i, ir.Constant(I64, 64)))
        x = load(b, place, VF32)
        x = b.select(b.fcmp_unordered("uno", x, x), const_vector(0.0), x)
        store(b, _between(b, x, -_LARGEST, _LARGEST), place)


def _between(b: ir.IRBuilder, x: ir.Value, low: float, high: float) -> ir.Value:
    x = b.select(b.fcmp_ordered("<", x, const_vector(low)), const_vector(low), x)
    return b.select(b.fcmp_ordered(">", x, const_vector(high)), const_vector(high), x)


def _extreme(b: ir.IRBuilder, parts: tuple[ir.Value, ir.Value]) -> ir.Value:
    """The entry of largest magnitude; of two, the positive one."""
    x, y = parts
    top = reduce(b, b.select(b.fcmp_ordered(">", x, y), x, y), lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q))
    bottom = reduce(b, b.select(b.fcmp_ordered("<", x, y), x, y), lambda p, q: b.select(b.fcmp_ordered("<", p, q), p, q))
    return b.select(b.fcmp_ordered(">=", top, b.fneg(bottom)), top, bottom)


def _quantise(name: str) -> Any:
    """quantise(source, scale, codes): 32 turned float32 to an fp16 scale and the codes' bytes."""
    levels = _LEVELS[name]

    def emit(b: ir.IRBuilder, source: Any, scale: Any, codes: Any) -> None:
        parts = (load(b, source, VF32), load(b, source, VF32, 64))
        emit_store_half(b, scale, b.fmul(_extreme(b, parts), const_f32(-1 / levels)))
        divisor = load_half_everywhere(b, scale)
        empty = b.fcmp_ordered("==", divisor, const_vector(0.0))
        wholes = []
        for part in parts:
            ratio = b.select(empty, const_vector(0.0), b.fdiv(part, divisor))
            wholes.append(b.fptosi(_between(b, rint(b, ratio), -levels, levels - 1), VI32))
        if name == "q4":
            low, high = (b.add(whole, const_vector(8, VI32)) for whole in wholes)
            wholes = [b.or_(low, b.shl(high, const_vector(4, VI32)))]
        for i, whole in enumerate(wholes):
            store(b, b.trunc(whole, _VI8), codes, 16 * i)

    return intrinsic_function(f"quantise_{name}", types.void, (types.int64,) * 3, emit)


turn = intrinsic_function("turn", types.void, (types.int64, types.int64), _emit_turn)
limit = intrinsic_function("limit", types.void, (types.int64, types.int64), _emit_limit)
QUANTISE = {name: _quantise(name) for name in CODE_BYTES}


# --- from codes ----------------------------------------------------------------------------------------------------


def _signed(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """16 int8 codes as float32."""
    return b.sitofp(b.sext(load(b, address, _VI8), VI32), VF32)


def _half_bytes(b: ir.IRBuilder, address: ir.Value, high: bool) -> ir.Value:
    """The low or the high codes of 16 bytes as float32, 8 taken off."""
    word = b.zext(load(b, address, _VI8), VI32)
    whole = b.lshr(word, const_vector(4, VI32)) if high else b.and_(word, const_vector(15, VI32))
    # At 2^23 the last bit of a float32 is 1: the code is written into the mantissa, and one difference centres it.
    lifted = b.bitcast(b.or_(whole, const_vector(0x4B000000, VI32)), VF32)
    return b.fsub(lifted, const_vector(2.0**23 + 8))


def key_tile(name: str, vectors: int, rows: int) -> Any:
    """tile(w, vector_stride, x, x_stride, out, out_stride): scores of one group, 16 positions a vector.

    out[t, 16 m + lane] += scale[m, lane] * sum over the 32 dimensions d of code[m, d, lane] * x[t, d]. `w` + m `vector_stride`
    is where sixteen positions' scales begin; the 32 rows (q4: 16 rows of bytes) of 16 codes follow.
    """
    steps = CODE_BYTES[name]

    def emit(b: ir.IRBuilder, w: Any, vector_stride: Any, x: Any, x_stride: Any, out: Any, out_stride: Any) -> None:
        totals = Accumulators(b, vectors * rows)
        totals.clear()
        starts = [b.add(w, b.mul(vector_stride, ir.Constant(I64, m))) for m in range(vectors)]
        x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
        # The halves of bytes take turns, so that no more vectors are alive than there are registers.
        for half in range(GROUP // steps):
            with counted_loop(b, ir.Constant(I64, steps)) as k:
                place, offset = b.add(b.shl(k, ir.Constant(I64, 4)), ir.Constant(I64, 2 * LANES)), b.shl(k, ir.Constant(I64, 2))
                places = [b.add(start, place) for start in starts]
                codes = [_signed(b, a) if name == "q8" else _half_bytes(b, a, half == 1) for a in places]
                for t in range(rows):
                    factor = splat(b, load(b, b.add(x_rows[t], offset), F32, 64 * half))
                    for m in range(vectors):
                        totals.add_product(t * vectors + m, factor, codes[m])
        for m in range(vectors):
            scale = load_half(b, starts[m])
            for t in range(rows):
                target = b.add(out, b.mul(out_stride, ir.Constant(I64, t)))
                store(b, fma(b, scale, totals.get(t * vectors + m), load(b, target, VF32, 64 * m)), target, 64 * m)

    return intrinsic_function(f"key_tile_{name}_{vectors}x{rows}", types.void, (types.int64,) * 6, emit)


def value_tile(name: str, rows: int) -> Any:
    """tile(w, count, x, x_stride, out, out_stride): out[t, d] += sum over `count` positions p of x[t, p] * code[p, d], d < 32."""

    def emit(b: ir.IRBuilder, w: Any, count: Any, x: Any, x_stride: Any, out: Any, out_stride: Any) -> None:
        totals = Accumulators(b, 2 * rows)
        x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
        out_rows = [b.add(out, b.mul(out_stride, ir.Constant(I64, t))) for t in range(rows)]
        for t in range(rows):
            for m in range(2):
                totals.set(2 * t + m, load(b, out_rows[t], VF32, 64 * m))
        with counted_loop(b, count) as p:
            address = b.add(w, b.mul(p, ir.Constant(I64, CODE_BYTES[name])))
            if name == "q8":
                codes = [_signed(b, address), _signed(b, b.add(address, ir.Constant(I64, 16)))]
            else:
                codes = [_half_bytes(b, address, False), _half_bytes(b, address, True)]
            offset = b.shl(p, ir.Constant(I64, 2))
            for t in range(rows):
                factor = splat(b, load(b, b.add(x_rows[t], offset), F32))
                for m in range(2):
                    totals.add_product(2 * t + m, factor, codes[m])
        for t in range(rows):
            for m in range(2):
                store(b, totals.get(2 * t + m), out_rows[t], 64 * m)

    return intrinsic_function(f"value_tile_{name}_{rows}", types.void, (types.int64,) * 6, emit)


def _emit_times_scales(b: ir.IRBuilder, x: Any, scales: Any, vectors: Any, out: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        scale = load_half(b, b.add(scales, b.mul(i, ir.Constant(I64, 2 * LANES))))
        store(b, b.fmul(load(b, b.add(x, offset), VF32), scale), b.add(out, offset))


times_scales = intrinsic_function("times_scales", types.void, (types.int64,) * 4, _emit_times_scales)
"""times_scales(x, scales, vectors, out): float32 numbers times fp16 ones."""
