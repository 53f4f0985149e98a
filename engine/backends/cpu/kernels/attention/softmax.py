"""Row operations of softmax on scores and outputs: vectors of 16 float32 in scratch memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.memory_ops import ld_f32, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    WIDE,
    Accumulators,
    const_f32,
    const_vector,
    counted_loop,
    exp_vector,
    fma,
    intrinsic_function,
    load,
    reduce,
    rint,
    splat,
    store,
    tanh_vector,
)

MINUS_INFINITY = -float("inf")
_EXP2 = (
    0.00015353360504377633,
    0.0013398875016719103,
    0.00961843691766262,
    0.055503323674201965,
    0.24022647738456726,
    0.6931471824645996,
)
"""Coefficients of (2^f - 1) / f for |f| <= 1/2, highest power first; 2^f has a relative error below 2e-8."""
_LOG2_E, _LOG2_E_REST = 1.4426950216293335, 1.9259629911266175e-08
"""log2(e) rounded to float32, and the remainder."""
AT_ONCE = 4
"""Vectors of a row that softmax takes together, each with its own sum, to hide the latency of additions."""


def exp_negative(b: ir.IRBuilder, x: Any) -> Any:
    """exp(x) for x <= 0, relative error below 2e-7 down to exp(-87); minus infinity gives 0, NaN stays."""
    if not WIDE:
        return exp_vector(b, x)
    x = b.select(b.fcmp_ordered("<", x, const_vector(-160.0)), const_vector(-160.0), x)
    whole = rint(b, b.fmul(x, const_vector(_LOG2_E)))
    # The products are exact within the sums.
    part = fma(b, x, const_vector(_LOG2_E_REST), fma(b, x, const_vector(_LOG2_E), b.fneg(whole)))
    value = const_vector(_EXP2[0])
    for c in _EXP2[1:]:
        value = fma(b, value, part, const_vector(c))
    value = fma(b, value, part, const_vector(1.0))
    kind = ir.FunctionType(VF32, [VF32, VF32, VF32, I16, I32])
    scale = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.mask.scalef.ps.512")
    return b.call(scale, [value, whole, value, ir.Constant(I16, -1), ir.Constant(I32, 4)])


def _greater(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _joined(b: ir.IRBuilder, parts: Accumulators, combine: Any) -> Any:
    """Combine `AT_ONCE` accumulators into one scalar."""
    pairs = [combine(parts.get(i), parts.get(i + 2)) for i in range(2)]
    return reduce(b, combine(*pairs), combine)


def _emit_max(b: ir.IRBuilder, row: Any, fours: Any) -> Any:
    top = Accumulators(b, AT_ONCE)
    for m in range(AT_ONCE):
        top.set(m, const_vector(MINUS_INFINITY))
    with counted_loop(b, fours) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64 * AT_ONCE)))
        for m in range(AT_ONCE):
            top.set(m, _greater(b, load(b, address, VF32, 64 * m), top.get(m)))
    return _joined(b, top, lambda x, y: _greater(b, x, y))


def _emit_exp(b: ir.IRBuilder, row: Any, fours: Any, maximum: Any) -> Any:
    total, top = Accumulators(b, AT_ONCE), splat(b, maximum)
    total.clear()
    with counted_loop(b, fours) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64 * AT_ONCE)))
        for m in range(AT_ONCE):
            value = exp_negative(b, b.fsub(load(b, address, VF32, 64 * m), top))
            store(b, value, address, 64 * m)
            total.set(m, b.fadd(total.get(m), value))
    return _joined(b, total, b.fadd)


def _emit_mask(b: ir.IRBuilder, row: Any, vectors: Any, low: Any, high: Any) -> None:
    lanes = ir.Constant(VI32, [ir.Constant(I32, i) for i in range(LANES)])
    first, end = splat(b, b.trunc(low, I32)), splat(b, b.trunc(high, I32))
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        place = b.add(lanes, splat(b, b.trunc(b.shl(i, ir.Constant(I64, 4)), I32)))
        kept = b.and_(b.icmp_signed(">=", place, first), b.icmp_signed("<", place, end))
        store(b, b.select(kept, load(b, address, VF32), const_vector(MINUS_INFINITY)), address)


def _emit_scale(b: ir.IRBuilder, row: Any, vectors: Any, factor: Any) -> None:
    times = splat(b, factor)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, b.fmul(load(b, address, VF32), times), address)


def _emit_times(b: ir.IRBuilder, x: Any, count: Any, factor: Any, y: Any) -> None:
    times, whole = splat(b, factor), b.ashr(count, ir.Constant(I64, 4))
    with counted_loop(b, whole) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        store(b, b.fmul(load(b, b.add(x, offset), VF32), times), b.add(y, offset))
    done = b.shl(whole, ir.Constant(I64, 4))
    with counted_loop(b, b.sub(count, done)) as i:
        offset = b.shl(b.add(done, i), ir.Constant(I64, 2))
        store(b, b.fmul(load(b, b.add(x, offset), F32), factor), b.add(y, offset))


def _emit_cap(b: ir.IRBuilder, row: Any, vectors: Any, cap: Any) -> None:
    high, inverse = splat(b, cap), splat(b, b.fdiv(const_f32(1.0), cap))
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, b.fmul(high, tanh_vector(b, b.fmul(load(b, address, VF32), inverse))), address)


def _places(b: ir.IRBuilder, i: Any, first: Any) -> Any:
    """first + 16 i + lane, as float32."""
    lanes = ir.Constant(VI32, [ir.Constant(I32, lane) for lane in range(LANES)])
    start = b.trunc(b.add(first, b.shl(i, ir.Constant(I64, 4))), I32)
    return b.sitofp(b.add(lanes, splat(b, start)), VF32)


def _to_bfloat16(b: ir.IRBuilder, x: Any) -> Any:
    """The nearest bfloat16 of finite values >= 0, the even one of two."""

    def const(value: int) -> Any:
        return ir.Constant(VI32, [ir.Constant(I32, value)] * LANES)

    bits = b.bitcast(x, VI32)
    odd = b.and_(b.lshr(bits, const(16)), const(1))
    up = b.add(bits, b.add(odd, const(0x7FFF)))
    return b.bitcast(b.and_(up, const(-0x10000)), VF32)


def _emit_slope(b: ir.IRBuilder, row: Any, vectors: Any, slope: Any, first: Any) -> None:
    times = splat(b, slope)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        store(b, fma(b, times, _places(b, i, first), load(b, address, VF32)), address)


def _emit_distance(b: ir.IRBuilder, row: Any, vectors: Any, slope: Any, first: Any) -> None:
    times = splat(b, slope)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        away = _places(b, i, first)
        behind = b.select(b.fcmp_ordered("<", away, const_vector(0.0)), away, b.fneg(away))
        store(b, fma(b, times, behind, load(b, address, VF32)), address)


def _emit_by_distance(b: ir.IRBuilder, row: Any, vectors: Any, table: Any, first: Any, most: Any) -> None:
    low = b.neg(b.add(most, ir.Constant(I64, LANES)))
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        place = b.add(first, b.shl(i, ir.Constant(I64, 4)))
        place = b.select(b.icmp_signed("<", place, low), low, place)
        place = b.select(b.icmp_signed(">", place, most), most, place)
        added = load(b, b.add(table, b.shl(place, ir.Constant(I64, 2))), VF32)
        store(b, b.fadd(load(b, address, VF32), added), address)


def _emit_rounded_slope(b: ir.IRBuilder, row: Any, vectors: Any, slope: Any, first: Any, factor: Any) -> None:
    times, outer = splat(b, slope), splat(b, factor)
    with counted_loop(b, vectors) as i:
        address = b.add(row, b.mul(i, ir.Constant(I64, 64)))
        added = _to_bfloat16(b, b.fmul(times, _to_bfloat16(b, _places(b, i, first))))
        store(b, fma(b, outer, added, load(b, address, VF32)), address)


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


def _emit_profiles(
    b: ir.IRBuilder, row: Any, vectors: Any, table: Any, stride: Any, weights: Any, count: Any
) -> None:
    with counted_loop(b, vectors) as i:
        offset, total = b.shl(i, ir.Constant(I64, 6)), Accumulators(b, 1)
        place, first = b.add(row, offset), b.add(table, offset)
        total.set(0, load(b, place, VF32))
        with counted_loop(b, count) as j:
            times = splat(b, load(b, b.add(weights, b.shl(j, ir.Constant(I64, 2))), F32))
            total.add_product(0, times, load(b, b.add(first, b.mul(j, stride)), VF32))
        store(b, total.get(0), place)


def _emit_dot(b: ir.IRBuilder, x: Any, y: Any, vectors: Any) -> Any:
    total = Accumulators(b, 1)
    total.clear()
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        total.add_product(0, load(b, b.add(x, offset), VF32), load(b, b.add(y, offset), VF32))
    return reduce(b, total.get(0), b.fadd)


def _emit_exp_scalar(b: ir.IRBuilder, x: Any) -> Any:
    return b.extract_element(exp_negative(b, splat(b, x)), ir.Constant(ir.IntType(32), 0))


row_mask = intrinsic_function("row_mask", types.void, (types.int64,) * 4, _emit_mask)
"""row_mask(row, vectors, low, high): scores before `low` and from `high` on become minus infinity."""
row_times = intrinsic_function(
    "row_times", types.void, (types.int64, types.int64, types.float32, types.int64), _emit_times
)
"""row_times(x, count, factor, y): y = factor * x for exactly `count` values."""
row_max = intrinsic_function("row_max", types.float32, (types.int64, types.int64), _emit_max)
row_exp = intrinsic_function("row_exp", types.float32, (types.int64, types.int64, types.float32), _emit_exp)
row_scale = intrinsic_function(
    "row_scale", types.void, (types.int64, types.int64, types.float32), _emit_scale
)
row_cap = intrinsic_function("row_cap", types.void, (types.int64, types.int64, types.float32), _emit_cap)
row_slope = intrinsic_function(
    "row_slope", types.void, (types.int64, types.int64, types.float32, types.int64), _emit_slope
)
"""row_slope(row, vectors, slope, first): row[i] += slope * (first + i)."""
row_distance = intrinsic_function(
    "row_distance", types.void, (types.int64, types.int64, types.float32, types.int64), _emit_distance
)
"""row_distance(row, vectors, slope, first): row[i] -= slope * |first + i|."""
row_by_distance = intrinsic_function("row_by_distance", types.void, (types.int64,) * 5, _emit_by_distance)
"""row_by_distance(row, vectors, table, first, most): row[i] += table[first + i], where `table` is the address
of the float32 for distance 0; those up to 16 beyond `most` to both sides are those of `most`, as all further.
"""
row_rounded_slope = intrinsic_function(
    "row_rounded_slope",
    types.void,
    (types.int64, types.int64, types.float32, types.int64, types.float32),
    _emit_rounded_slope,
)
"""row_rounded_slope(row, vectors, slope, first, factor): as `AttentionShape.rounded_slopes` says."""
row_clear = intrinsic_function("row_clear", types.void, (types.int64, types.int64), _emit_clear)
row_fill = intrinsic_function("row_fill", types.void, (types.int64, types.int64, types.float32), _emit_fill)
row_add = intrinsic_function(
    "row_add", types.void, (types.int64, types.int64, types.int64, types.float32), _emit_add
)
row_profiles = intrinsic_function("row_profiles", types.void, (types.int64,) * 6, _emit_profiles)
"""row_profiles(row, vectors, table, stride, weights, count): row[i] += the sum over j < `count` of weights[j]
times the float32 i of row j of a table, whose rows are `stride` bytes apart.
"""
row_dot = intrinsic_function("row_dot", types.float32, (types.int64, types.int64, types.int64), _emit_dot)
exp_scalar = intrinsic_function("exp_scalar", types.float32, (types.float32,), _emit_exp_scalar)


def weigh_row(row: int, vectors: int, low: int, valid: int, state: int, out: int, out_vectors: int) -> None:
    """Replace a page's scores by exp(score - m), m the running maximum; rescale sum and output if m grows.

    `row` has `vectors` vectors of scores; positions low .. valid - 1 count. `state` is (m, sum), float32.
    """
    if valid <= 0:
        row_clear(row, vectors)
        return
    fours = (vectors + AT_ONCE - 1) // AT_ONCE
    if low > 0 or valid < 16 * AT_ONCE * fours:
        row_mask(row, AT_ONCE * fours, max(low, 0), valid)
    before = ld_f32(state)
    top = max(before, row_max(row, fours))
    total = row_exp(row, fours, top)
    if top == before:
        st_f32(state + 4, ld_f32(state + 4) + total)
        return
    factor = exp_scalar(before - top)
    st_f32(state, top)
    st_f32(state + 4, ld_f32(state + 4) * factor + total)
    row_scale(out, out_vectors, factor)
