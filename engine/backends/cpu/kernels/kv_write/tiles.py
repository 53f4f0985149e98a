"""Quantised cache types: the Walsh-Hadamard transform, rounding to codes, and register tiles on codes.

A group is 32 transformed dimensions of one head at one position: an fp16 scale and 32 codes. In memory:

q8   32 bytes: int8 codes -128 .. 127;
q4   16 bytes: byte i holds code i (low half) and code i + 16 (high half); code c means Q4_LEVELS[c].

The tiles convert codes to float32 in registers; nothing is unpacked to memory. `engine.backends.kv_rounding`
is the reference, in plain torch.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.simd import (
    F32,
    I8,
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
    fma,
    fp16_values,
    half_bits,
    intrinsic_function,
    load,
    load_half,
    permute,
    reduce,
    rint,
    splat,
    store,
)
from engine.backends.cpu.kernels.attention.tiles import LINE, ask_for, parts
from engine.backends.kv_formats import GROUP, Q4_EXTREME, Q4_LEVELS, SCALE_SHARES

CODE_BYTES = {"q8": GROUP, "q4": GROUP // 2}
"""Bytes of one group's codes."""
_VI8 = ir.VectorType(I8, LANES)
_LARGEST = 65504.0


# --- to codes -----------------------------------------------------------------------------------------------


def _butterfly(b: ir.IRBuilder, value: ir.Value, distance: int) -> ir.Value:
    """Sums and differences of the lanes `distance` apart."""
    mask = ir.Constant(VI32, [ir.Constant(I32, i ^ distance) for i in range(LANES)])
    sign = ir.Constant(VF32, [ir.Constant(F32, -1.0 if i & distance else 1.0) for i in range(LANES)])
    return b.fadd(b.shuffle_vector(value, ir.Constant(VF32, ir.Undefined), mask), b.fmul(value, sign))


def _emit_hadamard(b: ir.IRBuilder, address: Any, groups: Any) -> None:
    """The orthonormal 32-point transform of each group of float32, in place; it is its own inverse."""
    with counted_loop(b, groups) as g:
        first = b.add(address, b.mul(g, ir.Constant(I64, 4 * GROUP)))
        x, y = load(b, first, VF32), load(b, first, VF32, 64)
        for half, part in enumerate((b.fadd(x, y), b.fsub(x, y))):
            for distance in (8, 4, 2, 1):
                part = _butterfly(b, part, distance)
            store(b, b.fmul(part, const_vector(1 / math.sqrt(GROUP))), first, 64 * half)


def _emit_limit(b: ir.IRBuilder, address: Any, groups: Any) -> None:
    """In place: NaN becomes 0 and values are clamped to fp16's range, so that outliers spoil no scale."""
    with counted_loop(b, b.mul(groups, ir.Constant(I64, 2))) as i:
        place = b.add(address, b.mul(i, ir.Constant(I64, 64)))
        x = load(b, place, VF32)
        x = b.select(b.fcmp_unordered("uno", x, x), const_vector(0.0), x)
        store(b, _between(b, x, -_LARGEST, _LARGEST), place)


def _between(b: ir.IRBuilder, x: ir.Value, low: float, high: float) -> ir.Value:
    x = b.select(b.fcmp_ordered("<", x, const_vector(low)), const_vector(low), x)
    return b.select(b.fcmp_ordered(">", x, const_vector(high)), const_vector(high), x)


def _extreme(b: ir.IRBuilder, parts: tuple[ir.Value, ir.Value]) -> ir.Value:
    """The entry of largest magnitude; of two equal ones, the positive one."""
    x, y = parts
    top = reduce(
        b, b.select(b.fcmp_ordered(">", x, y), x, y), lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q)
    )
    bottom = reduce(
        b, b.select(b.fcmp_ordered("<", x, y), x, y), lambda p, q: b.select(b.fcmp_ordered("<", p, q), p, q)
    )
    return b.select(b.fcmp_ordered(">=", top, b.fneg(bottom)), top, bottom)


def _emit_quantise_q8(b: ir.IRBuilder, source: Any, scale: Any, codes: Any) -> None:
    """quantise_q8(source, scale, codes): 32 transformed float32 to an fp16 scale, which makes their extreme
    the code -128, and 32 int8 codes.
    """
    parts = (load(b, source, VF32), load(b, source, VF32, 64))
    stored = _store_scale_q8(b, parts, scale)
    for i, part in enumerate(parts):
        ratio = b.select(
            b.fcmp_ordered("==", stored, const_vector(0.0)), const_vector(0.0), b.fdiv(part, stored)
        )
        store(b, b.trunc(b.fptosi(_between(b, rint(b, ratio), -128, 127), VI32), _VI8), codes, 16 * i)


def _emit_round_query_aware_q8(
    b: ir.IRBuilder, source: Any, direction: Any, gains: Any, before: Any, scale: Any, codes: Any
) -> Any:
    """round_query_aware_q8: as `quantise_q8`, but gain * error is subtracted from each entry before rounding.

    Codes are 16 bytes apart. The error is the sum of direction * (rounded - value) so far; `before` is that
    of the previous groups. Returns it.
    """
    stored = _store_scale_q8(b, (load(b, source, VF32), load(b, source, VF32, 64)), scale)
    inverse = b.select(
        b.fcmp_ordered("==", stored, const_vector(0.0)), const_vector(0.0), b.fdiv(const_vector(1.0), stored)
    )
    state = Accumulators(b, 1)
    state.set(0, splat(b, before))
    with counted_loop(b, ir.Constant(I64, GROUP)) as i:
        offset = b.shl(i, ir.Constant(I64, 2))
        value, direction, gain = (
            splat(b, load(b, b.add(place, offset), F32)) for place in (source, direction, gains)
        )
        code = _between(b, rint(b, b.fmul(b.fsub(value, b.fmul(gain, state.get(0))), inverse)), -128, 127)
        state.add_product(0, direction, b.fsub(b.fmul(code, stored), value))
        lane = b.extract_element(b.trunc(b.fptosi(code, VI32), _VI8), ir.Constant(I32, 0))
        store(b, lane, b.add(codes, b.shl(i, ir.Constant(I64, 4))))
    return b.extract_element(state.get(0), ir.Constant(I32, 0))


def _store_scale_q8(b: ir.IRBuilder, parts: tuple[ir.Value, ir.Value], scale: Any) -> ir.Value:
    """Store the fp16 scale that makes the extreme the code -128; returns it as float32 in all lanes."""
    bits = half_bits(b, b.fmul(_extreme(b, parts), const_f32(-1 / 128)))
    store(b, bits, scale)
    return fp16_values(b, splat(b, bits))


def _emit_quantise_q4(
    b: ir.IRBuilder, source: Any, direction: Any, gains: Any, before: Any, rest: Any, scale: Any, codes: Any
) -> Any:
    """quantise_q4: 32 transformed float32 to an fp16 scale and 32 bytes, codes 0 .. 15.

    Tries 16 scales, one in each lane, and takes the one of lowest cost: the sum of squared errors plus e^2 /
    `rest`. gain * e is subtracted from each entry before rounding; e is the sum of direction * (rounded -
    value) so far, `before` that of the previous groups. Returns e. Overwrites 32 x 16 bytes at `codes`.
    """
    parts = (load(b, source, VF32), load(b, source, VF32, 64))
    shares = ir.Constant(VF32, [ir.Constant(F32, share / Q4_LEVELS[0]) for share in SCALE_SHARES])
    # Clamped so that fp16 holds the scale: the difference of two outliers may be too large.
    bits = half_bits(b, b.fmul(_between(b, splat(b, _extreme(b, parts)), -Q4_EXTREME, Q4_EXTREME), shares))
    scales = fp16_values(b, bits)
    inverse = b.select(
        b.fcmp_ordered("==", scales, const_vector(0.0)), const_vector(0.0), b.fdiv(const_vector(1.0), scales)
    )
    state = Accumulators(b, 2)
    state.set(0, splat(b, before))
    state.set(1, const_vector(0.0))
    with counted_loop(b, ir.Constant(I64, GROUP)) as i:
        offset = b.shl(i, ir.Constant(I64, 2))
        value, direction, gain = (
            splat(b, load(b, b.add(place, offset), F32)) for place in (source, direction, gains)
        )
        target = b.fmul(b.fsub(value, b.fmul(gain, state.get(0))), inverse)
        code, level = _nearest(b, target)
        error = b.fsub(b.fmul(level, scales), value)
        state.add_product(0, direction, error)
        state.add_product(1, error, error)
        store(b, b.trunc(code, _VI8), b.add(codes, b.shl(i, ir.Constant(I64, 4))))
    cost = b.fadd(state.get(1), b.fdiv(b.fmul(state.get(0), state.get(0)), splat(b, rest)))
    lane = _lowest(b, cost)
    store(b, b.extract_element(bits, lane), scale)
    wide = b.zext(lane, I64)
    with counted_loop(b, ir.Constant(I64, GROUP)) as i:
        chosen = load(b, b.add(codes, b.add(b.shl(i, ir.Constant(I64, 4)), wide)), I8)
        store(b, chosen, b.add(codes, i))
    return b.extract_element(state.get(0), lane)


def _nearest(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The int32 code of the nearest level, and the level: a binary search over the levels' midpoints."""
    borders = [(low + high) / 2 for low, high in pairwise(Q4_LEVELS)]
    parts: list[tuple[ir.Value, ir.Value]] = [
        (const_vector(code, VI32), const_vector(level)) for code, level in enumerate(Q4_LEVELS)
    ]
    width = 1
    while len(parts) > 1:
        joined = []
        for i in range(0, len(parts), 2):
            above = b.fcmp_ordered(">", x, const_vector(borders[(i + 1) * width - 1]))
            joined.append(
                (b.select(above, parts[i + 1][0], parts[i][0]), b.select(above, parts[i + 1][1], parts[i][1]))
            )
        parts, width = joined, 2 * width
    return parts[0]


def _lowest(b: ir.IRBuilder, cost: ir.Value) -> ir.Value:
    """The first lane with the lowest cost."""
    least = splat(b, reduce(b, cost, lambda x, y: b.select(b.fcmp_ordered("<", x, y), x, y)))
    lanes = ir.Constant(VI32, [ir.Constant(I32, i) for i in range(LANES)])
    found = b.select(b.fcmp_ordered("==", cost, least), lanes, const_vector(0x7FFF, VI32))
    lane = reduce(b, found, lambda x, y: b.select(b.icmp_signed("<", x, y), x, y))
    return b.and_(lane, ir.Constant(I32, LANES - 1))


def _emit_pack(b: ir.IRBuilder, codes: Any, target: Any) -> None:
    """Pack 32 bytes of codes 0 .. 15 into 16 bytes, code i with code i + 16."""
    store(b, b.or_(load(b, codes, _VI8), b.shl(load(b, codes, _VI8, 16), const_vector(4, _VI8))), target)


hadamard = intrinsic_function("hadamard", types.void, (types.int64, types.int64), _emit_hadamard)
limit = intrinsic_function("limit", types.void, (types.int64, types.int64), _emit_limit)
quantise_q8 = intrinsic_function("quantise_q8", types.void, (types.int64,) * 3, _emit_quantise_q8)
round_query_aware_q8 = intrinsic_function(
    "round_query_aware_q8",
    types.float32,
    (types.int64, types.int64, types.int64, types.float32, types.int64, types.int64),
    _emit_round_query_aware_q8,
)
quantise_q4 = intrinsic_function(
    "quantise_q4",
    types.float32,
    (types.int64, types.int64, types.int64, types.float32, types.float32, types.int64, types.int64),
    _emit_quantise_q4,
)
pack_q4 = intrinsic_function("pack_q4", types.void, (types.int64, types.int64), _emit_pack)
CODES_ROOM = GROUP * LANES
"""Bytes that `quantise_q4` overwrites at `codes`."""


# --- from codes ---------------------------------------------------------------------------------------------


def signed_bytes(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """16 int8 codes as float32."""
    return b.sitofp(b.sext(load(b, address, _VI8), VI32), VF32)


def half_bytes(b: ir.IRBuilder, address: ir.Value, high: bool) -> ir.Value:
    """The levels of the low or the high codes of 16 bytes, float32."""
    word = b.zext(load(b, address, _VI8), VI32)
    if WIDE:  # the table fits one register, and only the lowest four bits of an index count
        return permute(
            b,
            ir.Constant(VF32, [ir.Constant(F32, level) for level in Q4_LEVELS]),
            b.lshr(word, const_vector(4, VI32)) if high else word,
        )
    whole = b.lshr(word, const_vector(4, VI32)) if high else b.and_(word, const_vector(15, VI32))
    code = b.sitofp(b.sub(whole, const_vector(8, VI32)), VF32)
    # Integers below 2^24 and a power of two: every step is exact, as in the table.
    return b.fmul(
        b.fmul(fma(b, b.fmul(code, code), const_vector(3.0), const_vector(512.0)), code),
        const_vector(1 / 512),
    )


def key_tile(name: str, vectors: int, rows: int) -> Any:
    """tile(w, vector_stride, x, x_stride, out, out_stride, ahead): scores of one group, 16 positions a vector

    out[t, 16 m + lane] += scale[m, lane] * sum over the 32 dimensions d of code[m, d, lane] * x[t, d]. The 16
    scales of vector m are at w + m vector_stride, followed by 32 (q4: 16) rows of 16 bytes of codes. Strides
    are in bytes. Prefetches from `ahead` as many bytes as it reads.
    """
    steps = CODE_BYTES[name]
    lines = -(-vectors * LANES // LINE)

    def emit(
        b: ir.IRBuilder,
        w: Any,
        vector_stride: Any,
        x: Any,
        x_stride: Any,
        out: Any,
        out_stride: Any,
        ahead: Any,
    ) -> None:
        x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
        ask_for(
            b, b.add(ahead, ir.Constant(I64, steps * vectors * LANES)), max(1, 2 * LANES * vectors // LINE)
        )
        for part in parts(vectors, rows):
            starts = [b.add(w, b.mul(vector_stride, ir.Constant(I64, m))) for m in part]
            totals = Accumulators(b, len(part) * rows)
            totals.clear()
            # One half of all bytes after the other, so that the live vectors fit the registers.
            for half in range(GROUP // steps):
                with counted_loop(b, ir.Constant(I64, steps)) as k:
                    if half == part.start == 0:
                        ask_for(b, b.add(ahead, b.mul(k, ir.Constant(I64, vectors * LANES))), lines)
                    place = b.add(b.shl(k, ir.Constant(I64, 4)), ir.Constant(I64, 2 * LANES))
                    offset, places = b.shl(k, ir.Constant(I64, 2)), [b.add(start, place) for start in starts]
                    codes = [
                        signed_bytes(b, a) if name == "q8" else half_bytes(b, a, half == 1) for a in places
                    ]
                    for t in range(rows):
                        factor = splat(b, load(b, b.add(x_rows[t], offset), F32, 64 * half))
                        for m, each in enumerate(codes):
                            totals.add_product(t * len(part) + m, factor, each)
            for m, start in zip(part, starts, strict=True):
                scale = load_half(b, start)
                for t in range(rows):
                    target = b.add(out, b.mul(out_stride, ir.Constant(I64, t)))
                    total = totals.get(t * len(part) + m - part.start)
                    store(b, fma(b, scale, total, load(b, target, VF32, 64 * m)), target, 64 * m)

    return intrinsic_function(f"key_tile_{name}_{vectors}x{rows}", types.void, (types.int64,) * 7, emit)


def value_tile(name: str, rows: int) -> Any:
    """tile(w, count, x, x_stride, out, out_stride, ahead)

    out[t, d] += sum over `count` positions p of x[t, p] * code[p, d], for d < 32. With AVX-512 positions are
    taken in pairs, with a sum for each of the two: after an odd count x must hold a zero.
    """
    size = CODE_BYTES[name]
    chains = 2 if WIDE else 1

    def emit(
        b: ir.IRBuilder, w: Any, count: Any, x: Any, x_stride: Any, out: Any, out_stride: Any, ahead: Any
    ) -> None:
        x_rows = [b.add(x, b.mul(x_stride, ir.Constant(I64, t))) for t in range(rows)]
        out_rows = [b.add(out, b.mul(out_stride, ir.Constant(I64, t))) for t in range(rows)]
        pairs = b.sdiv(b.add(count, ir.Constant(I64, chains - 1)), ir.Constant(I64, chains))
        for part in parts(2, rows * chains):
            totals = Accumulators(b, len(part) * rows * chains)
            totals.clear()
            with counted_loop(b, pairs) as pair:
                start = b.mul(pair, ir.Constant(I64, size * chains))
                if part.start == 0:
                    ask_for(b, b.add(ahead, start), 1)
                for c in range(chains):
                    address = b.add(b.add(w, start), ir.Constant(I64, size * c))
                    offset = b.mul(pair, ir.Constant(I64, 4 * chains))
                    codes = [
                        signed_bytes(b, b.add(address, ir.Constant(I64, 16 * m)))
                        if name == "q8"
                        else half_bytes(b, address, m == 1)
                        for m in part
                    ]
                    for t in range(rows):
                        factor = splat(b, load(b, b.add(x_rows[t], offset), F32, 4 * c))
                        for m, each in enumerate(codes):
                            totals.add_product((t * len(part) + m) * chains + c, factor, each)
            for t in range(rows):
                for m in part:
                    total = load(b, out_rows[t], VF32, 64 * m)
                    for c in range(chains):
                        total = b.fadd(total, totals.get((t * len(part) + m - part.start) * chains + c))
                    store(b, total, out_rows[t], 64 * m)

    return intrinsic_function(f"value_tile_{name}_{rows}", types.void, (types.int64,) * 7, emit)


def _emit_times_scales(b: ir.IRBuilder, x: Any, scales: Any, vectors: Any, out: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        scale = load_half(b, b.add(scales, b.mul(i, ir.Constant(I64, 2 * LANES))))
        store(b, b.fmul(load(b, b.add(x, offset), VF32), scale), b.add(out, offset))


times_scales = intrinsic_function("times_scales", types.void, (types.int64,) * 4, _emit_times_scales)
"""times_scales(x, scales, vectors, out): out = x (float32) * scales (fp16)."""
